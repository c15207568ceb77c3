# SPDX-License-Identifier: Apache-2.0
"""What each back end of the ``Deployments`` port does alike, because libostree does it or its files show it.

A back end lists the deployments, stages, discards and rolls back in its own way. A staged deployment is the same
whichever program staged it: it is locked and unlocked, entered by a soft reboot, and finalized by libostree.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from nodeagent import installed
from nodeagent.core.enumerated import enumerated
from nodeagent.core.plan.deployment import Deployment, StagedLock
from nodeagent.errors import AgentError, Refused, Terminal
from nodeagent.host.dbus.client import Bus
from nodeagent.host.ostree.boot_order import BootEntries, other_boots_first
from nodeagent.host.ostree.credentials import Credentials
from nodeagent.host.ostree.finalization import Finalization
from nodeagent.host.ostree.programs import CommandTiming, Services
from nodeagent.host.ostree.redeployment import Redeployment
from nodeagent.host.ostree.soft_reboot import SoftReboot
from nodeagent.host.ostree.staged import OwnDeployments, Ownership, StagedState
from nodeagent.host.ostree.sysroot import directory_of
from nodeagent.reasons import Reason

_UNITS: Final = "usr/lib/systemd/system"


class LibostreeBackEnd(ABC):
    """``services`` is systemd. ``make_bus`` makes a connection to the system bus. ``root`` is for tests."""

    def __init__(self, services: Services, make_bus: Callable[[], Bus], root: Path, timing: CommandTiming) -> None:
        self._services = services
        self._make_bus = make_bus
        self._root = root
        self._staged = StagedState(root)
        self._entries = BootEntries(root)
        self._credentials = Credentials(root)
        self._ownership = Ownership(root)
        self._soft_reboot = SoftReboot(self._staged, make_bus, root, timing)
        self._finalization = Finalization(services, self._staged, make_bus, root, timing)
        self._redeployment = Redeployment(make_bus, root, timing)

    # The command that removes a staged deployment, for a hint; "" for that of the reason.
    removal: str = ""

    @abstractmethod
    async def list(self) -> Sequence[Deployment]: ...

    async def _is_good(self, deployment: str) -> bool:
        return deployment in await asyncio.to_thread(self._ownership.good)

    async def _refuse_foreign(self, first: Deployment, own: OwnDeployments, replace: str) -> None:
        """Refuse to replace a deployment of another program: without a question, it would be the base and be gone.

        ``first`` boots next. ``replace`` is an owned one that is not staged any more. A staged deployment is from this
        boot, so the record knows it. A finalized one may be older than the record.
        """
        if first.booted or (first.id == replace and not first.staged):
            return
        if first.staged and await asyncio.to_thread(self._ownership.owns, first):
            own.ours.add(first.id)
            return
        what = first.version or first.digest or first.checksum
        message = f"{first.id} ({what}) is {'staged' if first.staged else 'the next to boot'}, but not by nodeagent"
        hint = f"find its owner, or remove it: {self.removal}" if self.removal else ""
        raise Refused(message, reason=Reason.STAGED_BY_OTHER, hint=hint)

    async def _refuse_unserved(self, deployment: str) -> None:
        """Raise ``Terminal`` (``ImageUnserved``) if no back end could serve this host in the tree of ``deployment``.

        It would boot, and nothing there could verify it, roll it back, or update it.
        """
        if titles := await asyncio.to_thread(_unserved, directory_of(self._root, deployment)):
            message = f"the new image has none of the programs that serve deployments: {enumerated(titles)}"
            raise Terminal(message, reason=Reason.IMAGE_UNSERVED)

    async def unlock(self, deployment: str) -> None:
        if not await self._is_good(deployment):
            message = f"{deployment} is not the result of a successful staging of nodeagent"
            raise Refused(message, reason=Reason.STAGED_LOST)
        await self._finalization.unlock(deployment)

    async def staged_lock(self) -> StagedLock | None:
        lock = await asyncio.to_thread(self._staged.lock)
        return StagedLock(lock.id, lock.locked) if lock is not None else None

    async def lock_again(self, deployment: str) -> None:
        lock = await asyncio.to_thread(self._staged.lock)
        if lock is not None and lock.id == deployment:
            await asyncio.to_thread(self._staged.set_legacy)

    async def boots_of_other(self, own: str) -> str:
        lock = await asyncio.to_thread(self._staged.lock)
        if lock is not None and not lock.locked:
            ours = lock.id == own or await asyncio.to_thread(self._ownership.may_own, lock.id)
            return "" if ours else lock.id
        try:
            deployments = await self.list()
        except AgentError:
            # The boot order is the same for a back end that does not answer.
            other = await asyncio.to_thread(other_boots_first, self._root)
            return "" if other == own else other
        # A locked staged deployment is discarded by a reboot, and the next one in the order boots.
        first = next((deployment for deployment in deployments if not deployment.staged), None)
        if first is None or first.booted or first.id == own:
            return ""
        return f"{first.id} ({first.version})" if first.version else first.id

    async def unmerged_soft_reboot(self, *, running: bool = False) -> str:
        return await self._soft_reboot.unmerged(running=running)

    async def reset_soft_reboot(self) -> None:
        await self._soft_reboot.reset()

    async def check_soft_reboot(self, deployment: str) -> None:
        await self._soft_reboot.check(await self.list(), deployment)

    async def prepare_soft_reboot(self, deployment: str) -> None:
        await self._soft_reboot.prepare(await self.list(), deployment)

    async def finalize_failure(self) -> str:
        return await self._finalization.failure()


def _unserved(tree: Path) -> Sequence[str]:
    """Return what could serve a host, if nothing of it can in this tree."""
    # Of a tree that cannot be read nothing is known.
    if not (tree / _UNITS).is_dir():
        return ()
    able = {door.title: door.serves_tree for door in installed.doors() if door.serves_tree is not None}
    return () if any(serves(tree) for serves in able.values()) else sorted(able)
