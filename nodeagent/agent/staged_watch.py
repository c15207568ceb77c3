# SPDX-License-Identifier: Apache-2.0
"""The watch of the next boot: what another program stages or puts first, and what it does to the deployment of the
agent.

The agent stages locked deployments, so that no reboot boots one before its files are written. Another program may
unlock it (``ostree admin lock-finalization --unlock``; an updater does it as well), replace it, stage one of its own,
which the next reboot boots, or put another one first (``ostree admin set-default``). An unlocked one of the agent is
locked again once; another's is never touched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from nodeagent import log
from nodeagent.agent.report.report import Report
from nodeagent.errors import AgentError, Refused
from nodeagent.reasons import Reason
from nodeagent.update.record import Record
from nodeagent.update.run import Ports, Update
from nodeagent.update.stages.admission import other_boots
from nodeagent.update.stages.os_deployments import HostDeployments
from nodeagent.update.states import Phase

NEXT_BOOT: Final = "next boot"
STAGED: Final = "staged deployment"

# Seconds until a store or a deployment that cannot be read is read again.
RETRY: Final = 30.0


def _is_staged(name: str) -> bool:
    return name.startswith("staged-deployment")


def _is_order(name: str) -> bool:
    return name == "loader"


# Directories, and which of their files change with the next boot: the state and the lock of the staged deployment, and
# the link that libostree replaces when it changes the boot order.
FILES: Final = (("/run/ostree", _is_staged), ("/boot", _is_order))


@dataclass(eq=False)
class StagedWatch:
    """``changed`` is called when a deployment may have been staged, unlocked or removed; ``run`` acts on it.

    ``update`` returns the update under way.
    """

    ports: Ports
    os: HostDeployments
    report: Report
    update: Callable[[], Update | None]
    _look: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    # The owned deployments that were locked again.
    _locked_again: set[str] = field(default_factory=set, init=False)

    def changed(self) -> None:
        self._look.set()

    async def run(self) -> None:
        while True:
            await self._look.wait()
            # Cleared before the read, so that a change during the read is not missed.
            self._look.clear()
            try:
                await self.check()
            except AgentError as error:
                log.get(__name__).warning(f"the staged deployment is not watched: {error.message}", reason=error.reason)
                await asyncio.sleep(RETRY)
                self._look.set()

    async def check(self) -> None:
        update = self.update()
        record = update.record if update is not None else await self.ports.store.load()
        # From here on the agent itself unlocks its deployment, for a reboot.
        leaves = update is not None and (update.committed or update.reboot_accepted)
        leaves = leaves or (record.phase is Phase.REBOOTING and await self.ports.power.going_down())
        if not leaves:
            await self._check_own(record)
        if other := await self.os.boots_of_other(record):
            self.report.problem(NEXT_BOOT, Refused(other_boots(other), reason=Reason.STAGED_BY_OTHER))
        else:
            self.report.solved(NEXT_BOOT, "a reboot boots no deployment of another program any more")
        await self.os.report_boot_order()

    async def _check_own(self, record: Record) -> None:
        own = record.os.staged
        if not own or record.os.staged_boot_id != self.ports.power.boot_id():
            self.report.solved(STAGED, "no deployment of nodeagent is staged any more")
            return
        lock = await self.os.port.staged_lock()
        if lock is None or lock.id != own:
            # Without a staged one, it may be finalized already, or on the way to that.
            if lock is not None:
                message = f"{own}, which nodeagent staged, was replaced by {lock.id} of another program"
                self.report.problem(STAGED, Refused(message, reason=Reason.STAGED_LOST))
            return
        if lock.locked:
            self.report.solved(STAGED, f"{own} is locked")
            return
        message = f"another program unlocked {own}: a reboot would boot it before its files are written"
        if own in self._locked_again:
            self.report.problem(STAGED, Refused(message, reason=Reason.STAGED_UNLOCKED))
            return
        self._locked_again.add(own)
        await self.os.port.lock_again(own)
        log.get(__name__).warning(f"{message}; it is locked again", reason=Reason.STAGED_UNLOCKED)
