# SPDX-License-Identifier: Apache-2.0
"""Ports to the operating system: shutdown, deployments, and the units of a staging."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from nodeagent.core.config.file_tree import FileTreeEntry
from nodeagent.core.plan.deployment import Deployment, OsTarget, StagedLock, StageProgress
from nodeagent.core.plan.os_changes import OsChanges
from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason


@dataclass(frozen=True, slots=True)
class Inhibitor:
    """An inhibitor of a shutdown."""

    who: str
    why: str
    # Name and pid, if known.
    process: str


Confirm = Callable[[], Awaitable[None]]


class ShutdownKind(StrEnum):
    """A soft reboot starts the services again, and no kernel."""

    REBOOT = "reboot"
    SOFT_REBOOT = "soft reboot"
    POWER_OFF = "power-off"

    @property
    def blocked(self) -> AnyReason:
        """The reason of the refusal if an inhibitor blocks it."""
        return Reason.POWER_OFF_BLOCKED if self is ShutdownKind.POWER_OFF else Reason.REBOOT_BLOCKED


class Power(Protocol):
    """Shutdowns through logind."""

    def boot_id(self) -> str:
        """Return the identity of this boot (``core.boot``). It changes with each reboot, including soft reboots."""
        ...

    async def blockers(self) -> Sequence[Inhibitor]:
        """Return the inhibitors of other programs that block a shutdown."""
        ...

    # A shutdown between two writes would boot parts of two configs.
    def inhibit(self, purpose: str) -> AbstractAsyncContextManager[None]:
        """Keep other programs from shutting this host down. Without logind it only warns."""
        ...

    async def shut_down(
        self,
        kind: ShutdownKind,
        announcement: str,
        *,
        warn: float,
        force: bool,
        confirm: Confirm,
        warned: Callable[[], None],
        direct: bool,
    ) -> None:
        """Warn users, wait ``warn`` seconds if there are any, await ``confirm`` and request the shutdown.

        ``warned`` is called when the wait begins.

        Returns when logind has accepted it. ``force`` overrides inhibitors. An error of ``confirm``, or cancelling the
        call, cancels the shutdown and its warning. ``direct`` starts the target of systemd instead, for a logind that
        does not answer; then users are not warned. A soft reboot raises ``NoSoftReboot`` where that is not known, and
        never becomes a full one.
        """
        ...

    async def going_down(self) -> bool:
        """Return whether a shutdown was accepted and is under way. An inhibitor may delay it for a minute or longer."""
        ...

    # Firmware and loader are known where the loader reports its times to systemd, as systemd-boot does.
    async def kernel_start_seconds(self) -> float | None:
        """Return how long firmware, boot loader, kernel and initramfs took at the last start of the kernel.

        None if that is not known.
        """
        ...


class BootedSystem(Protocol):
    """What runs since this boot, as files of the host show it: also where no program serves deployments."""

    async def fips(self) -> bool:
        """Return whether the kernel is in FIPS mode."""
        ...

    async def name(self) -> str:
        """Return a name for the booted operating system, with what differs from others: version and deployment."""
        ...


@dataclass(frozen=True, slots=True)
class StagingUnit:
    """A unit that writes much for an update.

    ``is_busy`` is there for one that writes into the repository of libostree, whose settings it reads when it starts.
    It returns whether the unit works for another program, and must not be restarted. ``slice`` is there for transient
    units: it has all that write for the staging, and takes limits before the first of them exists.
    """

    name: str
    is_busy: Callable[[], Awaitable[bool]] | None = None
    slice: str = ""


@dataclass(frozen=True, slots=True)
class Preparation:
    """Work before a staging, in a unit of its own. ``task`` is shown while it runs.

    ``run`` gets the text of a pull secret, None for that of the host, and raises what ``Deployments.stage`` does.
    """

    task: str
    unit: StagingUnit
    run: Callable[[bytes | None], Awaitable[None]]


class Deployments(Protocol):
    """The OS deployments of this host. A host that is not image-based has no such port."""

    @property
    def staging_unit(self) -> StagingUnit:
        """The unit that writes in ``stage``."""
        ...

    async def list(self) -> Sequence[Deployment]:
        """Read the deployments in boot order. The first one boots next; a locked staged one does not."""
        ...

    async def check_stageable(self, target: OsTarget) -> None:
        """Check quickly whether staging is possible.

        Raises ``Refused`` if another program updates this host (``OtherDriver``) or a kernel does not fit into /boot
        (``BootFull``), ``Terminal`` (``NoSpace``), and ``Unreconcilable`` (``NoDeployments``, ...) if the host does not
        support it.
        """
        ...

    async def preparation(self, target: OsTarget) -> Preparation | None:
        """Return what ``stage`` needs beforehand; None if that is nothing."""
        ...

    # The staging is locked, because any shutdown in the meantime, also by another program, would finalize it without
    # the files that belong to it.
    async def stage(
        self, target: OsTarget, *, credentials: bytes | None, replace: str, on_progress: Callable[[StageProgress], None]
    ) -> Deployment:
        """Stage a locked deployment that meets ``target``, and return it. Returns at once if it exists already.

        Cancelling the call cancels the transaction. ``credentials`` is the text of a pull secret, None for that of the
        host. ``replace`` is the id of an owned deployment; any other one that boots next is never overwritten, but
        ``Refused`` (``StagedByOther``).

        Raises ``Retryable`` (``RegistryUnreachable``, ``StageFailed``, ...), ``Terminal`` (``ImageNotFound``,
        ``Unauthorized``, ``SignatureInvalid``, ``NoSpace``, ``StageIncomplete``) and ``Refused`` (another program is at
        work for too long).
        """
        ...

    # The reboot follows when the host may go down, and not with the unlocking.
    async def unlock(self, deployment: str) -> None:
        """Unlock the staged deployment, so that the next shutdown finalizes it. Does nothing if it is unlocked.

        Raises ``Refused`` (``StagedLost``) if another deployment, or none, is staged.
        """
        ...

    async def discard(self) -> None:
        """Remove the staged or pending deployment. The booted one and the rollback one remain."""
        ...

    async def rollback(self) -> str:
        """Make the previous deployment boot next without a prompt, and return the id of the next deployment.

        If the boot loader would ask for a password, the same tree is deployed again. Does nothing if the first
        deployment is neither booted nor staged. Raises ``Terminal`` (``NoRollback``, ``RollbackAsksPassword``).
        """
        ...

    # Files only, so that it works while the daemon does not answer, and on hosts without one.
    async def staged_lock(self) -> StagedLock | None:
        """Return the staged deployment, of any program; None if there is none."""
        ...

    async def lock_again(self, deployment: str) -> None:
        """Lock an owned staged deployment that another program has unlocked. Does nothing if another one is staged."""
        ...

    async def boots_of_other(self, own: str) -> str:
        """Return the deployment of another program that a reboot boots instead of the booted one, "" if there is none.

        ``own`` is the id of an owned one. What a daemon that does not answer would know is left out.
        """
        ...

    async def unmerged_soft_reboot(self, *, running: bool = False) -> str:
        """Return the id of a locked deployment that a prepared soft reboot would start unmerged, or "".

        With ``running``: of the one that another program started so, and that runs now.
        """
        ...

    async def reset_soft_reboot(self) -> None:
        """Clear a prepared soft reboot. Raises ``Refused`` (``LockedSoftReboot``) if it would start a locked deployment
        and remains."""
        ...

    async def check_soft_reboot(self, deployment: str) -> None:
        """Raise ``NoSoftReboot`` if a soft reboot into the staged deployment is not possible, or not enough: it has
        another kernel, initramfs, kernel arguments or SELinux policy, or changes another file that only a starting
        kernel reads. Raise ``Refused`` (``StagedLost``) if it is not staged.
        """
        ...

    # Of a locked deployment the shutdown leaves out the merge of /etc, and the soft reboot would enter it all the
    # same.
    async def prepare_soft_reboot(self, deployment: str) -> None:
        """Prepare a soft reboot into the staged and unlocked deployment, and check the result.

        Does nothing if it is prepared already. Raises ``NoSoftReboot``; then nothing of it is left, as far as that is
        possible.
        """
        ...

    async def changes(self, staged: str, managed: Mapping[str, FileTreeEntry] | None) -> OsChanges:
        """Return how the staged deployment differs from the booted one; parts that cannot be read are unknown.

        ``managed`` are the entries of the new config, None if it is not known. Raises as ``list``.
        """
        ...

    # libostree finalizes while the host shuts down, so a failure is known in the next boot at the earliest.
    async def finalize_failure(self) -> str:
        """Return why the last shutdown did not finalize, "" if it did."""
        ...
