# SPDX-License-Identifier: Apache-2.0
"""Stage the OS of a config for a plan: locked, for inspection only, while no update runs.

The config is not applied. Nothing is disrupted, so no lease and no slot is acquired. The result stays locked, so that
no reboot by any program boots it, and is kept in this boot: an update to the same target uses it, any other one
replaces or discards it. An update that is requested in the meantime ends the staging.

The record has ``OsProgress.target`` and ``kept`` while the staging is under way, and ``kept`` alone when it is
complete. The next turn of the loop discards the result of one that failed, was cancelled or was killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from nodeagent.errors import AgentError, Refused, Retryable
from nodeagent.reasons import Reason
from nodeagent.update import keeper
from nodeagent.update.course import COURSE, Cancellation
from nodeagent.update.next.cancelling import Cancelled
from nodeagent.update.next.desired import DesiredReader
from nodeagent.update.next.preflight import Desired
from nodeagent.update.next.unreadable import load_or_half_way
from nodeagent.update.ports.events import PhaseEntered, UpdateCancelled, Warned
from nodeagent.update.record import OsProgress, Record, half_way, interrupted
from nodeagent.update.run import Ports, Run, Update, UpdatePolicy, narrate
from nodeagent.update.stages.os_deployments import HostDeployments, discard_own, find_own
from nodeagent.update.stages.stage import stage_unless_newer
from nodeagent.update.states import Phase, Prepare, Rest
from nodeagent.update.wait import NotNow

# Seconds for a turn of the loop that begins no update.
TURN = 10.0


@dataclass(slots=True)
class _Staging:
    """The staging under way. ``cancelled`` names who cancelled it."""

    desired: Desired
    cancelled: str = ""
    # Whether the cancellation ended it.
    obeyed: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False)
class PlanStaging:
    """``check`` is that of the loop, and ``wake`` is set when the desired config may have changed.

    ``alone`` is held by each turn of the loop, and by a staging.
    """

    ports: Ports
    desired: DesiredReader
    check: Callable[[Desired], Awaitable[Update]]
    policy: Callable[[], UpdatePolicy]
    wake: asyncio.Event
    random: Callable[[], float]
    alone: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _staging: _Staging | None = field(default=None, init=False)

    async def cancel(self, who: str) -> Cancelled | None:
        """End the staging under way, and return what was cancelled; None if there is none, or if it ended before."""
        if (staging := self._staging) is None:
            return None
        staging.cancelled = who
        # The staging checks whether it is cancelled only when it is woken.
        self.wake.set()
        await staging.over.wait()
        if not staging.obeyed:
            return None
        name, digest = staging.desired.config.name, staging.desired.source.digest
        record = await self.ports.store.load()
        narrate(self.ports, record, UpdateCancelled, f"{who} cancelled the staging of {name}", Reason.CANCELLED)
        return Cancelled(name, digest, "", Cancellation.STAGING)

    async def stage(self, desired: Desired) -> Update:
        """Stage what the update to ``desired`` needs of the OS, and return that update, which does not begin.

        Raises as the check of an update and as a staging, and ``Refused`` while an update is under way, if one is
        requested, and while another holder has the lease.
        """
        try:
            # A turn that runs an update holds the lock until its end, which may take hours.
            async with asyncio.timeout(TURN):
                await self.alone.acquire()
        except TimeoutError:
            message = "an update is under way, or the OS is staged for another plan"
            raise Refused(message, reason=Reason.UPDATE_UNDER_WAY) from None
        staging = self._staging = _Staging(desired)
        try:
            record = await load_or_half_way(self.ports)
            _check_rest(record)
            update = await self.check(desired)
            if self.ports.os is not None and update.target is not None:
                await self._stage(self.ports.os, record, update, staging)
            return update
        finally:
            self._staging = None
            self.alone.release()
            staging.over.set()

    async def _stage(self, os: HostDeployments, record: Record, update: Update, staging: _Staging) -> None:
        target = update.target
        assert target is not None
        wanted = update.record.os.target
        # Saved first: after a kill, the next turn finds the result by it.
        record = replace(record, os=OsProgress(target=wanted, kept=wanted, staged=await find_own(os, record)))
        await keeper.save(self.ports, record)
        # Events show the host at rest, as it is, with the progress of the staging.
        shown = Update(record, update.new, update.plan)
        run = Run(self.ports, self.policy(), shown, self.wake, await self._requested(staging), _never, self.random)
        limit = asyncio.timeout(COURSE[Prepare, Phase.STAGING].deadline)
        try:
            async with limit:
                complete = await stage_unless_newer(run, os, target)
        except NotNow as error:
            raise Refused(error.message, reason=error.reason) from error
        except TimeoutError:
            if not limit.expired():
                raise
            message = f"the staging took more than {COURSE[Prepare, Phase.STAGING].deadline} s"
            raise Retryable(message, reason=Reason.PHASE_LATE) from None
        finally:
            # The progress is over, whatever the end was.
            narrate(self.ports, record, PhaseEntered, record.message, record.reason)
        if not complete and staging.cancelled:
            staging.obeyed = True
            raise Refused(f"{staging.cancelled} cancelled the staging", reason=Reason.CANCELLED)
        if not complete:
            raise Refused("an update is requested in the meantime", reason=Reason.UPDATE_UNDER_WAY)
        done = OsProgress(kept=wanted, staged=shown.record.os.staged, staged_boot_id=self.ports.power.boot_id())
        await keeper.save(self.ports, replace(record, os=done))

    async def _requested(self, staging: _Staging) -> Callable[[Update], Awaitable[bool]]:
        """Return a function that returns whether an update was requested since then, or the staging was cancelled."""
        first = await self._digest()

        async def requested(_update: Update) -> bool:
            if staging.cancelled:
                return True
            return await self.ports.store.request() is not None or await self._digest() != first

        return requested

    async def _digest(self) -> str:
        """Return the digest of the desired config, "" if there is none, or none that can be read."""
        try:
            # Without the effects of a read by the loop on pending requests.
            desired = await self.desired.source()
        except AgentError:
            return ""
        return desired.source.digest if desired is not None else ""

    async def tidy(self, record: Record) -> Record:
        """Discard the result of a staging that is not complete. A failure is reported, and the next turn retries."""
        if not isinstance(record.leg, Rest) or record.os.kept is None or record.os.target is None:
            return record
        try:
            if self.ports.os is not None:
                await discard_own(self.ports.os, record)
        except AgentError as error:
            narrate(self.ports, record, Warned, str(error), error.reason)
            return record
        record = replace(record, os=OsProgress())
        await keeper.save(self.ports, record)
        return record


def _check_rest(record: Record) -> None:
    if half_way(record):
        raise Refused(
            "the last update ended half-way, and its deployments are needed to repair it",
            reason=Reason.UPDATE_UNDER_WAY,
            hint="apply a config, or run nodeagent rollback, then plan again",
        )
    if not isinstance(record.leg, Rest) or interrupted(record):
        raise Refused(f"an update is under way ({record.phase})", reason=Reason.UPDATE_UNDER_WAY)


async def _never(_update: Update, _error: AgentError) -> bool:
    return False
