# SPDX-License-Identifier: Apache-2.0
"""The deployments of the host as the phases use them: each change is reported, and the booted one is cached.

A deployment of the agent is identified by its id, which is saved at the end of the staging. If the agent was killed
just before that, the target identifies it, which is saved before the staging.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from nodeagent.core.config.file_tree import FileTreeEntry
from nodeagent.core.config.image import OsImage, content_id
from nodeagent.core.once import Once
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
from nodeagent.errors import AgentError, Retryable, Terminal, Unreachable
from nodeagent.reasons import Reason
from nodeagent.update.ports.events import DeploymentsChanged, StagedInspected
from nodeagent.update.ports.host import Clock, Reporter
from nodeagent.update.ports.system import Deployments
from nodeagent.update.record import Record

if TYPE_CHECKING:
    from nodeagent.update.stages.guard import Guard

# Seconds between two calls of what serves the deployments, which may still be starting after a boot.
ASK_AGAIN = 5.0

# Seconds for it to start after a boot. Afterwards the executor waits for it, and reports that.
STARTING = 30.0

# Seconds for a comparison of two deployments, which only informs.
INSPECTION = 120.0


class BootedSide(Enum):
    # The deployment that was booted when the update began.
    OLD = "old"
    NEW = "new"
    # A third deployment, chosen at the boot menu.
    OTHER = "other"


async def _nothing() -> None:
    pass


@dataclass(eq=False)
class HostDeployments:
    """Wraps what changes the boot order, and reports each change of it. Raises the errors of ``Deployments``.

    ``guards`` are called before the boot order changes. The boot loader must reach a deployment that works after a
    power cut at any step. ``begins`` is called before each staging.
    """

    port: Deployments
    reporter: Reporter
    guards: Sequence[Guard] = ()
    begins: Callable[[], Awaitable[None]] = _nothing
    _booted: Deployment | None = field(default=None, init=False)
    _reported: Once[tuple[Deployment, ...]] = field(default_factory=Once, init=False)
    # Bytes of the last staging, and what the deployment that it made changes.
    _fetched: int | None = field(default=None, init=False)
    _changes: OsChanges | None = field(default=None, init=False)
    # The version of each image that was on this host in the life of this process, by digest or checksum.
    _versions: dict[str, str] = field(default_factory=dict, init=False)

    async def list(self) -> Sequence[Deployment]:
        deployments = tuple(await self.port.list())
        self._booted = self._booted or booted(deployments)
        if self._reported.is_new(deployments):
            self._versions |= {
                content: deployment.version for deployment in deployments for content in contents(deployment)
            }
            self.reporter.emit(DeploymentsChanged(deployments))
        return deployments

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
        """Return the booted deployment right after a boot, when nothing may answer yet."""
        # Beyond STARTING the caller fails, so that the status names the service for which the update waits.
        give_up = clock.monotonic() + min(seconds, STARTING)
        while True:
            try:
                return await self.booted()
            except (Retryable, Unreachable):
                if clock.monotonic() >= give_up:
                    raise
            await asyncio.sleep(ASK_AGAIN)

    async def stage(
        self, target: OsTarget, *, credentials: bytes | None, replace: str, on_progress: Callable[[StageProgress], None]
    ) -> Deployment:
        def progressed(progress: StageProgress) -> None:
            if progress.fetched is not None:
                self._fetched = max(self._fetched or 0, progress.fetched)
            on_progress(progress)

        self._fetched = None
        await self.begins()
        try:
            return await self.port.stage(target, credentials=credentials, replace=replace, on_progress=progressed)
        finally:
            await self.report_boot_order()

    async def boots_of_other(self, record: Record) -> str:
        """Return the deployment of another program that a reboot boots, "" if there is none, or it cannot be read."""
        with contextlib.suppress(AgentError):
            return await self.port.boots_of_other(record.os.staged)
        return ""

    async def inspect(self, managed: Mapping[str, FileTreeEntry] | None = None) -> OsChanges | None:
        """Report and return what the staged deployment changes; None without one, or if it cannot be compared.

        ``managed`` are the entries of the new config, None if that is not known. It is compared once.
        """
        # The comparison only informs, so no update fails because of it.
        with contextlib.suppress(AgentError, TimeoutError):
            deployment = staged(await self.list())
            if deployment is None:
                return None
            if (
                self._changes is None
                or self._changes.staged != deployment.id
                or (managed and self._changes.merged is None)
            ):
                async with asyncio.timeout(INSPECTION):
                    changes = await self.port.changes(deployment.id, managed)
                self._changes = replace(changes, fetched=self._fetched)
                self.reporter.emit(StagedInspected(self._changes))
            return self._changes
        return None

    async def unlock(self, deployment: str) -> None:
        await self.port.unlock(deployment)
        await self.report_boot_order()

    async def discard(self) -> None:
        for guard in self.guards:
            await guard.before_discard()
        await self.port.discard()
        await self.end_new_os()
        await self.report_boot_order()

    async def rollback(self) -> str:
        # Otherwise the boot loader may take the second entry, which is the new deployment then.
        await self.end_new_os()
        boots = await self.port.rollback()
        await self.report_boot_order()
        return boots

    async def end_new_os(self) -> None:
        """End what was prepared for the boot of a new OS. Raises as the guards."""
        for guard in self.guards:
            await guard.end_new_os()

    async def report_staged(self) -> None:
        """Report the boot order, and what a staged deployment changes."""
        await self.inspect()

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
        is_ours = in_the_way or deployment.locked is not False
        if is_ours and target is not None and not unmet(target, deployment):
            return deployment.id
    return ""


async def discard_own(os: HostDeployments, record: Record, *, in_the_way: bool = False) -> str:
    """Discard the deployment of the agent and return its id. ``in_the_way`` as in ``find_own``."""
    if own := await find_own(os, record, in_the_way=in_the_way):
        await os.discard()
    return own


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
