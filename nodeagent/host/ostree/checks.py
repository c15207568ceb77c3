# SPDX-License-Identifier: Apache-2.0
"""Checks before a staging: no other updater, and space for another deployment.

Two programs that stage deployments would discard each other's. Other updaters are not stopped by nodeagent, and not
disabled, because that is a decision of the admin; the hint has the command.

A full /boot is noticed too late otherwise: the kernel is copied there during the shutdown, and if it does not fit, the
old deployment boots again. libostree since 2023.7 frees space first, by removing kernels that the new boot order does
not use (``auto_early_prune_old_deployments``). Before that all kernels must fit at once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from nodeagent.core.plan.deployment import Deployment
from nodeagent.errors import AgentError, Refused, Terminal
from nodeagent.host.fs.os_errors import translated
from nodeagent.host.ostree.boot_order import BootEntry
from nodeagent.host.ostree.programs import Services, ostree_version
from nodeagent.reasons import Reason

_EARLY_PRUNE = (2023, 7)
_BLOCK = 4096
_RUNS = ("active", "activating", "reloading")


async def refuse_updater(services: Services, unit: str, name: str) -> None:
    """Raise ``Refused`` (``OtherDriver``) if ``unit``, that of the updater ``name``, runs."""
    if await _runs(services, unit):
        raise driven(name, f"systemctl disable --now {unit}")


async def _runs(services: Services, unit: str) -> bool:
    try:
        return (await services.state(unit)).active in _RUNS
    except AgentError as error:
        if error.reason in (Reason.UNIT_NOT_FOUND, Reason.UNIT_MASKED, Reason.UNIT_INVALID):
            return False
        raise


def driven(name: str, hint: str) -> Refused:
    """Return the error for a host that ``name`` updates."""
    return Refused(f"this host is updated by {name}", reason=Reason.OTHER_DRIVER, hint=hint)


class Space:
    """``min_free`` is how many bytes must be free in /sysroot. The hints name the commands that free space there."""

    def __init__(self, root: Path, min_free: int, *, sysroot_hint: str, boot_hint: str) -> None:
        self._root = root
        self.min_free = min_free
        self._sysroot_hint = sysroot_hint
        self._boot_hint = boot_hint

    def check_sysroot(self) -> None:
        """Raise ``Terminal`` (``NoSpace``) if there is less. Blocks."""
        path = self._root / "sysroot"
        with translated("read the free space of", str(path)):
            free = _free(path)
        if free < self.min_free:
            message = f"{_mib(free)} MiB free in /sysroot, staging needs at least {_mib(self.min_free)}"
            raise Terminal(message, reason=Reason.NO_SPACE, hint=self._sysroot_hint)

    async def check_boot(self, deployments: Sequence[Deployment], entries: Mapping[str, BootEntry]) -> None:
        """Raise ``Refused`` (``BootFull``) if another kernel does not fit into /boot."""
        names: dict[bool, set[str]] = {True: set(), False: set()}
        for deployment in deployments:
            entry = entries.get(deployment.id)
            if entry is not None and (deployment.booted or deployment.pinned):
                names[deployment.booted].add(Path(entry.kernel).parent.name)
        # Since 2023.7 libostree removes unneeded kernels before it writes a new one.
        prunes = await ostree_version() >= _EARLY_PRUNE
        await asyncio.to_thread(self._boot_fits, names[True], names[True] | names[False] if prunes else None)

    def _boot_fits(self, booted: set[str], needed: set[str] | None) -> None:
        """Check /boot. ``needed`` are the directories of the kernels that stay; None means all."""
        boot = self._root / "boot"
        with translated("read the free space of", str(boot)):
            if not (boot / "ostree").is_dir() or boot.stat().st_dev == (self._root / "sysroot").stat().st_dev:
                # The same file system as /sysroot, which was checked before.
                return
            # Each directory holds one kernel with its initramfs. Deployments with the same kernel share it.
            sizes = {d.name: _size(d) for d in (boot / "ostree").iterdir() if d.is_dir()}
            free = _free(boot)
        # The next kernel is about as large as the booted one.
        wants = sum(sizes.get(name, 0) for name in booted)
        frees = 0 if needed is None else sum(size for name, size in sizes.items() if name not in needed)
        if free + frees < wants:
            message = f"{_mib(free + frees)} MiB can be freed in /boot, a kernel needs {_mib(wants)}"
            raise Refused(message, reason=Reason.BOOT_FULL, hint=self._boot_hint)


def _free(path: Path) -> int:
    stat = os.statvfs(path)
    return stat.f_bavail * stat.f_frsize


def _size(directory: Path) -> int:
    # Files occupy whole blocks.
    return sum(-(-file.lstat().st_size // _BLOCK) * _BLOCK for file in directory.rglob("*"))


def _mib(size: int) -> int:
    return size >> 20
