# SPDX-License-Identifier: Apache-2.0
"""The deployments of the host in memory, and its rpm-ostreed and boot loader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from nodeagent.core.config.file_tree import FileTreeEntry
from nodeagent.core.config.image import ContainerImage, OstreeCommit
from nodeagent.core.plan.deployment import (
    Deployment,
    OsTarget,
    StagedLock,
    StageProgress,
    booted,
    merged_arguments,
    staged,
    unmet,
)
from nodeagent.core.plan.os_changes import OsChanges
from nodeagent.errors import NoSoftReboot, Refused, ServiceUnavailable, SoftObstacle, Terminal
from nodeagent.reasons import Reason
from nodeagent.update.ports.system import Preparation, StagingUnit

if TYPE_CHECKING:
    from tests.world.world import World


@dataclass
class Etc:
    """The part of the host that belongs to one deployment: its /etc, with the password file and the links of units."""

    files: dict[str, FileTreeEntry] = field(default_factory=dict)
    passwords: dict[str, str] = field(default_factory=dict)
    enabled: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)


def of_deployment(path: str) -> bool:
    return path.startswith(("/etc/", "/usr/"))


@dataclass
class Deployments:
    deployments: list[Deployment] = field(default_factory=list)  # boot order; empty: not an image-based host
    etcs: dict[str, Etc] = field(default_factory=dict)  # of the deployments that are not booted, by id
    shipped: dict[str, dict[str, FileTreeEntry]] = field(default_factory=dict)  # image digest to its own /etc
    versions: dict[str, str] = field(default_factory=dict)  # image digest to its version
    serial: int = 0
    grub_asks: bool = False  # GRUB has superusers, and old entries a list of users
    boot_menu: dict[int, str] = field(default_factory=dict)  # an operator chooses this deployment at that boot
    next_root: bool = False  # an operator prepared a soft reboot
    prepared: str = ""  # the deployment into which the agent prepared a soft reboot
    unfinalized: dict[str, FileTreeEntry] | None = None  # /etc of the old deployment, while a new one runs unmerged
    kernels: dict[str, str] = field(default_factory=dict)  # image digest to its kernel, where that is another one
    finalize_failure: str = ""
    stage_seconds: float = 0.0
    staged_with_lease: list[str] = field(default_factory=list)  # who held the lease while something was staged
    credentials: list[bytes | None] = field(default_factory=list)
    fetched: list[tuple[str, bytes | None]] = field(default_factory=list)  # extensions images, with what pull secret


def lost_answer() -> ServiceUnavailable:
    """The error of a request to an rpm-ostreed that does not answer."""
    return ServiceUnavailable("rpm-ostreed does not answer", reason=Reason.BUS_TIMEOUT)


class FakeBootedSystem:
    """The port on what runs since the boot."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def fips(self) -> bool:
        return self.world.fips

    async def name(self) -> str:
        found = booted(self.world.deployments)
        return f"OS {found.version} ({found.id})" if found is not None else "OS"


class FakeDeployments:
    """The port on rpm-ostree and the boot loader."""

    def __init__(self, world: World) -> None:
        self.world = world

    @property
    def staging_unit(self) -> StagingUnit:
        return StagingUnit("updater.service")

    async def list(self) -> Sequence[Deployment]:
        self.world.meet("list deployments")
        if self.world.unfinalized is not None:
            raise lost_answer()
        return list(self.world.deployments)

    async def check_stageable(self, target: OsTarget) -> None:
        self.world.meet("guard")

    async def preparation(self, target: OsTarget) -> Preparation | None:
        image = target.extensions_image

        async def fetch(credentials: bytes | None) -> None:
            assert image is not None
            self.world.meet("fetch packages")
            self.world.fetched.append((image.digest, credentials))

        return None if image is None else Preparation("packages", StagingUnit("packages.service"), fetch)

    async def stage(
        self, target: OsTarget, *, credentials: bytes | None, replace: str, on_progress: Callable[[StageProgress], None]
    ) -> Deployment:
        world = self.world
        world.tick()
        world.credentials.append(credentials)
        if (there := staged(world.deployments)) is not None:
            if not unmet(target, there) and there.locked:
                return there
            if there.id != replace:
                raise Refused(f"{there.id} is staged, and not by us", reason=Reason.STAGED_BY_OTHER)
        world.meet("stage")
        for part in range(20):
            if world.holder is not None:
                world.staged_with_lease.append(world.holder.name)
            on_progress(StageProgress("Importing layers", part, 20))
            if (fault := world.fault(f"layer {part}")) is not None and fault.error is not None:
                raise fault.error
            await asyncio.sleep(world.stage_seconds / 20)
        new = self._make(target)
        world.drop_staged()
        world.prepared = ""
        world.deployments.insert(0, new)
        world.tick()
        return new

    def _make(self, target: OsTarget) -> Deployment:
        world = self.world
        base = booted(world.deployments)
        assert base is not None
        world.serial += 1
        digest, checksum = base.digest, base.checksum
        match target.image:
            case ContainerImage():
                digest = checksum = target.image.digest
            case OstreeCommit():
                checksum = target.image.checksum
            case None:
                pass
        arguments = merged_arguments(base.kernel_arguments, target)
        if world.fault("kernel arguments"):
            arguments = tuple(token for token in arguments if token not in target.kernel_arguments)
        return Deployment(
            f"os-{checksum[-4:]}.{world.serial}",
            checksum,
            "os",
            version=world.versions.get(digest, ""),
            digest=digest,
            packages=(base.packages - target.without_packages) | target.packages,
            removed=(base.removed - target.without_removed) | target.removed,
            kernel_arguments=arguments,
            staged=True,
            locked=True,
        )

    async def unlock(self, deployment: str) -> None:
        self.world.tick()
        there = staged(self.world.deployments)
        if there is None or there.id != deployment:
            raise Refused(f"{deployment} is not staged any more", reason=Reason.STAGED_LOST)
        self.world.deployments[0] = replace(there, locked=False)
        self.world.tick()

    async def discard(self) -> None:
        self.world.tick()
        at = next(i for i, d in enumerate(self.world.deployments) if d.booted)
        del self.world.deployments[:at]
        self.world.prepared = ""
        self.world.tick()

    async def rollback(self) -> str:
        self.world.tick()
        order = self.world.deployments
        if order[0].staged:
            raise Refused(f"cannot roll back while {order[0].id} is staged", reason=Reason.STAGED_BY_OTHER)
        if order[0].booted:
            if len(order) < 2:
                raise Terminal("there is no other deployment", reason=Reason.NO_ROLLBACK)
            order[0], order[1] = order[1], order[0]
            if self.world.grub_asks:  # for a password, before it boots an old entry: so it gets a new one
                self.world.serial += 1
                made = replace(order[0], id=f"{order[0].id.partition('.')[0]}.{self.world.serial}")
                self.world.etcs[made.id] = self.world.etcs.pop(order[0].id)
                order[0] = made
        self.world.tick()
        return order[0].id

    async def staged_lock(self) -> StagedLock | None:
        found = staged(self.world.deployments)
        return StagedLock(found.id, bool(found.locked)) if found is not None else None

    async def lock_again(self, deployment: str) -> None:
        found = staged(self.world.deployments)
        if found is not None and found.id == deployment:
            self.world.deployments[0] = replace(found, locked=True)

    async def boots_of_other(self, own: str) -> str:
        found = next(d for d in self.world.deployments if not (d.staged and d.locked))
        return "" if found.booted or found.id == own else found.id

    async def unmerged_soft_reboot(self, *, running: bool = False) -> str:
        found = staged(self.world.deployments)
        if running:
            return found.id if self.world.unfinalized is not None and found is not None and found.locked else ""
        return found.id if self.world.next_root and found is not None and found.locked else ""

    async def reset_soft_reboot(self) -> None:
        self.world.tick()
        self.world.meet("reset soft reboot")
        self.world.next_root, self.world.prepared = False, ""
        self.world.tick()

    async def check_soft_reboot(self, deployment: str) -> None:
        world = self.world
        world.tick()
        world.meet("soft reboot into")
        here, there = booted(world.deployments), staged(world.deployments)
        assert here is not None
        if there is None or there.id != deployment:
            raise Refused(f"{deployment} is not staged", reason=Reason.STAGED_LOST)
        if world.next_root_of_another:
            raise NoSoftReboot("another system", SoftObstacle.ANOTHER_SYSTEM)
        if world.kernels.get(here.digest) != world.kernels.get(there.digest):
            raise NoSoftReboot("another kernel", SoftObstacle.KERNEL)
        if here.kernel_arguments != there.kernel_arguments:
            raise NoSoftReboot("other kernel arguments", SoftObstacle.KERNEL)

    async def prepare_soft_reboot(self, deployment: str) -> None:
        world = self.world
        world.tick()
        there = staged(world.deployments)
        assert there is not None
        assert (there.id, there.locked) == (deployment, False), "the start of a locked deployment was prepared"
        world.meet("prepare")
        world.prepared = deployment
        world.tick()

    async def changes(self, staged: str, managed: Mapping[str, FileTreeEntry] | None) -> OsChanges:
        return OsChanges(staged, merged=None if managed is None else ())

    async def finalize_failure(self) -> str:
        return self.world.finalize_failure
