"""The deployments of the host as the phases use them: each change is reported, and the booted one is cached.

A deployment of the agent is identified by its id, which is saved at the end of the staging. If the agent was killed
just before that, the target identifies it, which is saved before the staging.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from nodeagent.agent.update.counted_boots import CountedBoots
from nodeagent.core.config.file_tree import FileTreeEntry
from nodeagent.core.config.image import OsImage, content_id
from nodeagent.core.once import Once
from nodeagent.core.plan.bootloader import BootloaderCheck
from nodeagent.core.plan.deployment import (
    Deployment,
    OsTarget,
    StageProgress,
    booted,
    contents,
    staged,
    target_from_dict,
    unmet,
)
from nodeagent.core.plan.os_changes import OsChanges
from nodeagent.core.update.events import BootloaderChecked, DeploymentsChanged, StagedInspected
from nodeagent.core.update.ports.host import Clock, Reporter
from nodeagent.core.update.ports.system import BootCounter, Bootloader, Deployments
from nodeagent.core.update.record import Record
from nodeagent.errors import AgentError, Retryable, Terminal, Unreachable
from nodeagent.reasons import Reason

# Seconds between two calls of rpm-ostreed, which may still be starting after a boot.
ASK_AGAIN = 5.0

# Seconds for rpm-ostreed to start after a boot. Afterwards the executor waits for it, and reports that.
STARTING = 30.0

# Seconds for a comparison of two deployments, which only informs.
INSPECTION = 120.0


class BootedSide(Enum):
    # The deployment that was booted when the update began.
    OLD = "old"
    NEW = "new"
    # A third deployment, chosen at the boot menu.
    OTHER = "other"


class HostDeployments:
    """Wraps ``Deployments`` and reports every change of the boot order. Raises the same errors.

    ``counting`` are the boots that the boot loader counts, which depend on the boot order. Without a ``bootloader`` the
    settings leave that alone.
    """

    def __init__(
        self,
        port: Deployments,
        reporter: Reporter,
        counter: BootCounter | None = None,
        bootloader: Bootloader | None = None,
    ) -> None:
        self.bootloader = bootloader
        self._port = port
        self._reporter = reporter
        self.counting = CountedBoots(counter)
        self._booted: Deployment | None = None
        self._reported = Once[tuple[Deployment, ...]]()
        self._bootloader_reported = Once[BootloaderCheck]()
        # Bytes of the last staging, and what the deployment that it made changes.
        self._fetched: int | None = None
        self._changes: OsChanges | None = None
        # The version of each image that was on this host in the life of this process, by digest or checksum.
        self._versions: dict[str, str] = {}

    def use(self, port: Deployments, counter: BootCounter) -> None:
        """Use these from the next call on, because settings have changed."""
        self._port = port
        self.counting = CountedBoots(counter)

    async def list(self) -> Sequence[Deployment]:
        found = tuple(await self._port.list())
        self._booted = self._booted or booted(found)
        if self._reported.is_new(found):
            self._versions |= {content: each.version for each in found for content in contents(each)}
            self._reporter.emit(DeploymentsChanged(found))
        return found

    def version_of(self, image: OsImage) -> str:
        """Return the version of an image that is, or was, on this host; "" if it is not known."""
        return self._versions.get(content_id(image), "")

    async def booted(self) -> Deployment:
        """Return the booted deployment. Raises ``Terminal`` (``NoBootedDeployment``)."""
        # It cannot change during the life of this process, and a call may start a daemon of many megabytes.
        if self._booted is None:
            await self.list()
        if self._booted is None:
            raise Terminal("none of the deployments is the booted one", reason=Reason.NO_BOOTED_DEPLOYMENT)
        return self._booted

    async def booted_within(self, clock: Clock, seconds: float) -> Deployment:
        """Return the booted deployment right after a boot, when rpm-ostreed may not answer yet."""
        # Beyond STARTING the caller fails, so that the status names the service for which the update waits.
        give_up = clock.monotonic() + min(seconds, STARTING)
        while True:
            try:
                return await self.booted()
            except (Retryable, Unreachable):
                if clock.monotonic() >= give_up:
                    raise
            await asyncio.sleep(ASK_AGAIN)

    async def check_stageable(self, target: OsTarget) -> None:
        await self._port.check_stageable(target)

    async def needs_packages(self, target: OsTarget) -> bool:
        return await self._port.needs_packages(target)

    async def fetch_packages(self, target: OsTarget, *, credentials: bytes | None) -> None:
        await self._port.fetch_packages(target, credentials=credentials)

    async def stage(
        self, target: OsTarget, *, credentials: bytes | None, replace: str, on_progress: Callable[[StageProgress], None]
    ) -> Deployment:
        def progressed(progress: StageProgress) -> None:
            if progress.fetched is not None:
                self._fetched = max(self._fetched or 0, progress.fetched)
            on_progress(progress)

        self._fetched = None
        try:
            return await self._port.stage(target, credentials=credentials, replace=replace, on_progress=progressed)
        finally:
            await self.report_boot_order()

    async def inspect(self, managed: Mapping[str, FileTreeEntry] | None = None) -> OsChanges | None:
        """Report and return what the staged deployment changes; None without one, or if it cannot be compared.

        ``managed`` are the entries of the new config, None if that is not known. It is compared once.
        """
        # The comparison only informs, so no update fails because of it.
        with contextlib.suppress(AgentError, TimeoutError):
            found = staged(await self.list())
            if found is None:
                return None
            if self._changes is None or self._changes.staged != found.id or (managed and self._changes.merged is None):
                async with asyncio.timeout(INSPECTION):
                    changes = await self._port.changes(found.id, managed)
                self._changes = dataclasses.replace(changes, fetched=self._fetched)
                self._reporter.emit(StagedInspected(self._changes))
            return self._changes
        return None

    async def check_bootloader(self) -> BootloaderCheck | None:
        """Report and return the installed bootloader compared with that of the staged deployment, or of the booted one.

        None on a host without bootupd. Raises as ``list``.
        """
        if self.bootloader is None:
            return None
        found = await self.bootloader.check(staged(await self.list()))
        if found is not None and self._bootloader_reported.is_new(found):
            self._reporter.emit(BootloaderChecked(found))
        return found

    async def update_bootloader(self, *, bios: bool) -> None:
        """Install the bootloader of the staged deployment, or of the booted one. Raises as ``Bootloader.update``."""
        if self.bootloader is not None:
            await self.bootloader.update(staged(await self.list()), bios=bios)

    async def unlock(self, deployment: str) -> None:
        await self._port.unlock(deployment)
        await self.report_boot_order()

    async def discard(self) -> None:
        await self.counting.before_discard()
        await self._port.discard()
        await self.counting.end()
        await self.report_boot_order()

    async def rollback(self) -> str:
        # Otherwise the boot loader may take the second entry, which is the new deployment then.
        await self.counting.end()
        boots = await self._port.rollback()
        await self.report_boot_order()
        return boots

    async def end_stale_count(self) -> bool:
        """Count no more boots if no update does. Return whether they were counted.

        To be called at rest. The running deployment boots next anyway, so a count could only lead to another one.
        """
        if not await self.counting.began() or not (await self.list())[0].booted:
            return False
        await self.counting.end()
        return True

    async def unmerged_soft_reboot(self, *, running: bool = False) -> str:
        return await self._port.unmerged_soft_reboot(running=running)

    async def reset_soft_reboot(self) -> None:
        await self._port.reset_soft_reboot()

    async def check_soft_reboot(self, deployment: str) -> None:
        await self._port.check_soft_reboot(deployment)

    async def prepare_soft_reboot(self, deployment: str) -> None:
        await self._port.prepare_soft_reboot(deployment)

    async def finalize_failure(self) -> str:
        return await self._port.finalize_failure()

    async def report_staged(self) -> None:
        """Report the boot order, what a staged deployment changes, and the bootloader."""
        await self.report_boot_order()
        await self.inspect()
        with contextlib.suppress(AgentError):
            await self.check_bootloader()

    async def report_boot_order(self) -> None:
        """Report the boot order. A fault is left to the caller that needs the deployments."""
        with contextlib.suppress(AgentError):
            await self.list()


async def find_own(os: HostDeployments, record: Record, *, in_the_way: bool = False) -> str:
    """Return the id of a staged or pending deployment of the agent; "" if there is none.

    ``in_the_way``: also one of another program that meets the target.
    """
    if not record.os.staged and record.os.target is None:
        return ""
    target = target_from_dict(record.os.target) if record.os.target is not None else None
    for deployment in await os.list():
        # The boot order ends with the deployments for a rollback. One that is about to boot precedes the booted one.
        if deployment.booted:
            break
        if deployment.id == record.os.staged:
            return deployment.id
        # The agent stages locked deployments only, so an unlocked one belongs to another program.
        known = in_the_way or deployment.locked is not False
        if known and target is not None and not unmet(target, deployment):
            return deployment.id
    return ""


async def discard_own(os: HostDeployments, record: Record, *, in_the_way: bool = False) -> str:
    """Discard the deployment of the agent and return its id. ``in_the_way`` as in ``find_own``."""
    if found := await find_own(os, record, in_the_way=in_the_way):
        await os.discard()
    return found


def booted_side(record: Record, deployment: Deployment) -> BootedSide:
    """Return which side of the update in ``record`` is booted."""
    if deployment.id == record.os.origin:
        return BootedSide.OLD
    if deployment.id == record.os.staged:
        return BootedSide.NEW
    if record.os.target is not None and not unmet(target_from_dict(record.os.target), deployment):
        return BootedSide.NEW
    # A rollback may have made a new deployment of the old tree, and the power failed before the record was saved.
    return BootedSide.OLD if _tree(deployment.id) == _tree(record.os.origin) else BootedSide.OTHER


def _tree(deployment: str) -> str:
    """Return an id without its serial."""
    return deployment.rpartition(".")[0]
