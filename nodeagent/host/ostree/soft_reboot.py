# SPDX-License-Identifier: Apache-2.0
"""Soft reboots into a staged deployment, and those that another program prepared.

Facts (libostree's ``ostree-sysroot-deploy.c`` and ``ostree-soft-reboot.c``)
- ``ostree admin prepare-soft-reboot INDEX`` (since 2025.3) mounts a deployment at /run/nextroot and writes
  /run/ostree/nextroot-booted: an ``a{sv}`` whose key ``backing-root-device-inode`` is the directory of the deployment.
  libostree itself knows the prepared deployment by that. Before 2026.1 /boot or /sysroot may be missing after a soft
  reboot. It needs composefs.
- It refuses another kernel, initramfs or kernel arguments. It checks neither the SELinux policy, which a soft reboot
  does not load, nor modules, firmware and settings that only a starting kernel reads; so these are compared here.
- It ignores the lock of a staged deployment. The shutdown does not finalize that one, but the system starts it: with an
  unmerged /etc, so with another machine id and without local files, and without a boot entry, so that no ostree command
  works before a full reboot, which starts the old deployment. Therefore a deployment is unlocked first, then prepared,
  and then the result is checked.
- After the soft reboot ostree-boot-complete.service renames the note to /run/ostree-booted. Until then libostree takes
  the deployment from before for the booted one, and a daemon that was started by then does so until it ends. Nothing
  orders that service before others.
- Preparing another deployment than the staged one deletes the staged one. A new staging clears what is prepared.
- While something is prepared, any ``systemctl reboot`` is a soft reboot into it; the reboots of nodeagent are what they
  were requested as. The preparation is cleared all the same if a full reboot takes its place, because that reboot may
  be late or fail.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from nodeagent.core.enumerated import enumerated
from nodeagent.core.plan.deployment import Deployment, booted
from nodeagent.errors import AgentError, NoSoftReboot, Refused, ServiceUnavailable, SoftObstacle
from nodeagent.host.dbus.client import Bus
from nodeagent.host.ostree.boot_order import BOOTED, DIRECTORY
from nodeagent.host.ostree.programs import CommandTiming, ostree_version
from nodeagent.host.ostree.staged import StagedState
from nodeagent.host.ostree.trees import Trees, argument_changes
from nodeagent.host.ostree.vardict import Variant, boolean, device_and_inode, read_vardict
from nodeagent.host.systemd_jobs import run_unit
from nodeagent.reasons import Reason

# libostree creates it after the mounts and removes it with them.
PREPARED: Final = "/run/ostree/nextroot-booted"

_MOUNT: Final = " /run/nextroot "
_COMMAND: Final = ("/usr/bin/ostree", "admin", "prepare-soft-reboot")

# The first libostree after whose soft reboot /boot and /sysroot are mounted in each case.
_SINCE: Final = (2026, 1)
# Bytes of a file in /run.
_MAX: Final = 1 << 16


class SoftReboot:
    """Checks, prepares, detects and clears a soft reboot into a staged deployment."""

    def __init__(self, staged: StagedState, make_bus: Callable[[], Bus], root: Path, timing: CommandTiming) -> None:
        self._staged = staged
        self._make_bus = make_bus
        self._root = root
        self._prepared = root / PREPARED.lstrip("/")
        self._mounts = root / "proc/self/mountinfo"
        self._timing = timing
        # A soft reboot starts this process again, so later there is nothing to wait for.
        self._first = True
        self._compared = False

    async def completed(self) -> None:
        """Wait until libostree knows which deployment a soft reboot started; for a bounded time, and once."""
        first, self._first = self._first, False
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timing.complete):
                while first:
                    first = await asyncio.to_thread(self._is_left_over)
                    await asyncio.sleep(self._timing.retry_pause if first else 0)

    async def is_outdated(self, deployments: Sequence[Deployment]) -> bool:
        """Return whether ``deployments`` take another one for the booted one than libostree does. Compared once.

        A daemon from before the soft reboot is to be restarted then.
        """
        if self._compared:
            return False
        self._compared = True
        return await asyncio.to_thread(self._is_another, deployments)

    async def unmerged(self, *, running: bool = False) -> str:
        """Return the id of the locked deployment that a soft reboot would start, "" if there is none.

        With ``running``: of the one that a soft reboot has started.
        """
        if running:
            # Until then the note is about the deployment from before.
            await self.completed()
        return await asyncio.to_thread(self._runs_unmerged if running else self._unmerged)

    async def reset(self) -> None:
        """Clear the preparation. Raises ``Refused`` (``LockedSoftReboot``) if that fails for a locked deployment."""
        cause = ""
        try:
            async with self._make_bus() as bus:
                await run_unit(bus, (*_COMMAND, "--reset"), "Clear a prepared soft reboot", self._timing.unlock)
        except AgentError as error:
            cause = f": {error.message}"
        if deployment := await self.unmerged():
            message = f"{deployment} is locked and prepared for a soft reboot, which cannot be cleared{cause}"
            raise Refused(message, reason=Reason.LOCKED_SOFT_REBOOT)

    async def check(self, deployments: Sequence[Deployment], deployment: str) -> None:
        """Raise ``Refused`` as the port does. ``deployments`` are all of them."""
        version = await ostree_version()
        if version < _SINCE:
            shown_version = "of an unknown version" if version == (0, 0) else f"{version[0]}.{version[1]}"
            message = f"libostree is {shown_version}, and a soft reboot into a deployment needs {_SINCE[0]}.{_SINCE[1]}"
            raise NoSoftReboot(message, SoftObstacle.UNSUPPORTED)
        here, there = booted(deployments), next((d for d in deployments if d.id == deployment and d.staged), None)
        if here is None or there is None:
            raise Refused(f"{deployment} is not staged any more", reason=Reason.STAGED_LOST)
        added, removed = argument_changes(here.kernel_arguments, there.kernel_arguments)
        if changed := [*(f"-{argument}" for argument in removed), *(f"+{argument}" for argument in added)]:
            raise NoSoftReboot(f"kernel arguments change: {' '.join(changed)}", SoftObstacle.KERNEL)
        await asyncio.to_thread(self._check_files, here, there)

    async def prepare(self, deployments: Sequence[Deployment], deployment: str) -> None:
        """Prepare and check, as the port does."""
        at = next((index for index, d in enumerate(deployments) if d.id == deployment and d.staged), None)
        if at is None:
            raise _not_prepared(f"{deployment} is not staged any more")
        try:
            # A second preparation would mount a second time.
            if not await asyncio.to_thread(self._is_for, deployment):
                async with self._make_bus() as bus:
                    await run_unit(
                        bus, (*_COMMAND, str(at)), "Prepare a soft reboot for nodeagent", self._timing.unlock
                    )
            await asyncio.to_thread(self._check_prepared, deployment)
        except ServiceUnavailable:
            # systemd does not answer, and may still do it. The next attempt finds out.
            raise
        except AgentError as error:
            with suppress(AgentError):
                await self.reset()
            raise error if isinstance(error, Refused) else _not_prepared(error.message) from error

    # -- files ------------------------------------------------------------------------------------------------------

    def _unmerged(self) -> str:
        # libostree deletes the staged deployment when it prepares another one, so its note is about the staged one.
        lock = self._staged.lock()
        return lock.id if lock is not None and lock.locked and (self._prepared.exists() or self._has(lock.id)) else ""

    def _runs_unmerged(self) -> str:
        # A staged deployment runs only if it was started without being finalized, which ends its staging.
        lock, directory = self._staged.lock(), device_and_inode(_vardict(self._root / BOOTED).get(DIRECTORY))
        runs = lock is not None and directory is not None and self._is_directory(lock.id, directory)
        return lock.id if lock is not None and lock.locked and runs else ""

    def _has(self, deployment: str) -> bool:
        """Return whether the /etc of this deployment is mounted at /run/nextroot, which precedes libostree's note.

        A mount of another program has another /etc. ostree would not clear it, and it starts no part of this one.
        """
        if not self._mounted():
            return False
        with suppress(OSError):
            mounted = (self._root / _MOUNT.strip().lstrip("/") / "etc").stat()
            for path in self._directories(deployment):
                with suppress(OSError):
                    if os.path.samestat(mounted, (path / "etc").stat()):
                        return True
        return False

    def _is_left_over(self) -> bool:
        return self._prepared.exists() and not self._mounted()

    def _is_another(self, deployments: Sequence[Deployment]) -> bool:
        directory = device_and_inode(_vardict(self._root / BOOTED).get(DIRECTORY))
        if directory is None:
            return False
        of = {deployment.id for deployment in deployments if self._is_directory(deployment.id, directory)}
        here = booted(deployments)
        return bool(of) and here is not None and here.id not in of

    def _mounted(self) -> bool:
        try:
            with self._mounts.open(encoding="utf-8", errors="replace") as lines:
                return any(_MOUNT in line for line in lines)
        except OSError:
            return False

    def _check_files(self, here: Deployment, there: Deployment) -> None:
        if boolean(_vardict(self._root / BOOTED).get("composefs")) is not True:
            message = "the booted deployment has no composefs, without which libostree prepares no soft reboot"
            raise NoSoftReboot(message, SoftObstacle.UNSUPPORTED)
        # A preparation of this deployment may be ours, from before a restart.
        if (self._prepared.exists() or self._mounted()) and not self._is_for(there.id):
            message = f"another program prepared another system: {_MOUNT.strip()} is in use"
            raise NoSoftReboot(message, SoftObstacle.ANOTHER_SYSTEM)
        trees = Trees(self._root, here.osname, here.id, there.id)
        if differences := trees.kernel_starts():
            some = enumerated(f"/{path}: {cause}" for path, cause in differences)
            message = f"the new OS changes what only the start of a kernel applies ({some})"
            raise NoSoftReboot(message, SoftObstacle.KERNEL)

    def _is_for(self, deployment: str) -> bool:
        """Return whether the deployment with this id is prepared completely: mounted, and noted by libostree."""
        directory = device_and_inode(_vardict(self._prepared).get(DIRECTORY))
        return directory is not None and self._mounted() and self._is_directory(deployment, directory)

    def _is_directory(self, deployment: str, directory: tuple[int, int]) -> bool:
        for path in self._directories(deployment):
            with suppress(OSError):
                info = path.stat()
                if (info.st_dev, info.st_ino) == directory:
                    return True
        return False

    def _directories(self, deployment: str) -> list[Path]:
        """Return the directories that a deployment of this id may have: names of an OS may have a hyphen."""
        top = self._root / "ostree/deploy"
        parts = deployment.split("-")
        names = [("-".join(parts[:at]), "-".join(parts[at:])) for at in range(1, len(parts))]
        return [top / osname / "deploy" / name for osname, name in names]

    def _check_prepared(self, deployment: str) -> None:
        """Raise ``Refused`` unless a soft reboot would start exactly this deployment, finalized."""
        lock = self._staged.lock()
        if lock is None or lock.id != deployment:
            raise _not_prepared(f"{deployment} is not staged any more")
        if lock.locked:
            raise _not_prepared(f"{deployment} is locked")
        if not self._is_for(deployment):
            raise _not_prepared(f"ostree reported success, and /run/nextroot is not {deployment}")


def _not_prepared(cause: str) -> NoSoftReboot:
    return NoSoftReboot(f"the soft reboot could not be prepared: {cause}", SoftObstacle.NOT_PREPARED)


def _vardict(path: Path) -> Mapping[str, Variant]:
    """Return the ``a{sv}`` of a file, empty if the file is missing or has none."""
    try:
        with path.open("rb") as file:
            return read_vardict(file.read(_MAX))
    except (OSError, ValueError):
        return {}
