# SPDX-License-Identifier: Apache-2.0
"""Checks before staging: another updater, and free space.

Another updater is not stopped by nodeagent, and the daemon accepts requests of all of them. So the usual ones are
checked: Zincati, the update driver that is registered with rpm-ostree, rpm-ostree's automatic updates, and bootc's
timer. They are not disabled, because that is a decision of the admin; the hint has the command.

A full /boot is noticed too late otherwise: the kernel is copied there during the shutdown, and if it does not fit, the
old deployment boots again. libostree since 2023.7 frees space first, by removing kernels that the new boot order does
not use (``auto_early_prune_old_deployments``). Before that all kernels must fit at once.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from nodeagent.core.plan.deployment import OsTarget
from nodeagent.errors import AgentError, Refused, Terminal, Unreconcilable
from nodeagent.host.fs.os_errors import translated
from nodeagent.host.programs import ProgramLate, run_program
from nodeagent.host.rpmostree.client import SERVICE, Session, SysrootState
from nodeagent.host.rpmostree.staging import read_vardict, string
from nodeagent.reasons import Reason
from nodeagent.update.ports.host import UnitState


async def output_of(*command: str, deadline: float) -> Sequence[str]:
    """Return the lines that a program prints, none if it does not exist or takes longer than ``deadline`` seconds.

    Its exit status is ignored, because these are optional probes.
    """
    try:
        return (await run_program(command[0], command[1:], Path("/"), deadline))[1]
    except (OSError, ProgramLate):
        return ()


async def ostree_version() -> tuple[int, int]:
    """Return the version of libostree, (0, 0) if it is unknown."""
    output = await output_of("ostree", "--version", deadline=_VERSION_TIMEOUT)
    version = _VERSION.search("\n".join(output))
    return (int(version[1]), int(version[2])) if version else (0, 0)


_ZINCATI = "zincati.service"
_BOOTC_TIMER = "bootc-fetch-apply-updates.timer"
_OURS = "nodeagent.service"
_RUNS = ("active", "activating", "reloading")

_EARLY_PRUNE = (2023, 7)
_VERSION = re.compile(r"\bVersion: '?(\d{4})\.(\d+)")
# Seconds.
_VERSION_TIMEOUT = 10.0
_BLOCK = 4096


class Services(Protocol):
    """The methods of systemd that are used here."""

    async def state(self, unit: str) -> UnitState: ...

    async def start(self, unit: str, deadline: float) -> None: ...

    async def restart(self, unit: str, deadline: float) -> object: ...

    async def stop(self, unit: str, deadline: float) -> None: ...


def native_bootc(root: Path) -> bool:
    """Return whether the host was booted by bootc's own backend, which keeps its images without ostree.

    bootc itself uses the same kernel argument. Blocks for two small files in memory.
    """
    # ostree creates this file in every boot of one of its deployments.
    if (root / "run/ostree-booted").exists():
        return False
    try:
        arguments = (root / "proc/cmdline").read_text(encoding="utf-8", errors="replace").split()
    except FileNotFoundError:
        return False
    return any(argument.startswith("composefs=") for argument in arguments)


def bootc_host() -> Unreconcilable:
    """Return the error of a host without rpm-ostree."""
    return Unreconcilable("this host is updated by bootc only and has no rpm-ostree", reason=Reason.BOOTC_HOST)


def without_daemon(root: Path) -> Unreconcilable:
    """Return the error of a host with deployments of ostree and without rpm-ostree. Blocks."""
    if (root / "usr/bin/bootc").exists():
        return bootc_host()
    return Unreconcilable("this host has deployments, but no rpm-ostree", reason=Reason.NO_DEPLOYMENTS)


class Guards:
    """Checks before staging. ``min_free`` is in bytes."""

    def __init__(self, services: Services, root: Path, min_free: int) -> None:
        self._services = services
        self._root = root
        self._min_free = min_free

    async def check(self, session: Session, target: OsTarget) -> None:
        """Raise ``Refused`` (``OtherDriver``, ``NoSpace``, ``BootFull``) if staging must not begin."""
        await self._other_driver(session)
        await asyncio.to_thread(self._sysroot_space)
        if target.image is not None or target.removed or target.without_removed:
            await self._boot_space(await session.read())

    async def refuse_bootc(self) -> None:
        """Raise ``Unreconcilable`` (``BootcHost``) if ostree did not boot the host; the daemon cannot start there."""
        if await asyncio.to_thread(native_bootc, self._root):
            raise bootc_host()

    async def absent(self) -> Unreconcilable | None:
        """Return the error for a host without the daemon, None for a host with a daemon, even if it does not work."""
        if (await self._services.state(SERVICE)).load != "not-found":
            return None
        return await asyncio.to_thread(without_daemon, self._root)

    # -- drivers --------------------------------------------------------------------------------------------------

    async def _other_driver(self, session: Session) -> None:
        # Two programs that stage deployments would discard each other's.
        for unit, name in ((_ZINCATI, "Zincati"), (_BOOTC_TIMER, "bootc's automatic update")):
            if await self._runs(unit):
                raise _driven(name, f"systemctl disable --now {unit}")
        # A driver registers with the daemon, whichever program it is.
        name, unit = await asyncio.to_thread(self._registered)
        if unit not in ("", _OURS) and await self._runs(unit):
            raise _driven(name, f"systemctl disable --now {unit}")
        policy = str(await session.property("AutomaticUpdatePolicy"))
        if policy in ("stage", "apply"):
            hint = "set AutomaticUpdatePolicy=none in /etc/rpm-ostreed.conf, then: rpm-ostree reload"
            raise _driven(f"rpm-ostree's AutomaticUpdatePolicy={policy}", hint)

    async def _runs(self, unit: str) -> bool:
        try:
            return (await self._services.state(unit)).active in _RUNS
        except AgentError as error:
            if error.reason in (Reason.UNIT_NOT_FOUND, Reason.UNIT_MASKED, Reason.UNIT_INVALID):
                return False
            raise

    def _registered(self) -> tuple[str, str]:
        """Return name and unit of the update driver that is registered with the daemon. It may be stopped."""
        path = self._root / "run/rpm-ostree/update-driver.gv"
        try:
            with path.open("rb") as file:
                values = read_vardict(file.read(1 << 16))
            return string(values.get("driver-name")) or "an unnamed driver", string(values.get("driver-sd-unit")) or ""
        except (FileNotFoundError, ValueError):
            return "", ""

    # -- space ----------------------------------------------------------------------------------------------------

    def _sysroot_space(self) -> None:
        path = self._root / "sysroot"
        with translated("read the free space of", str(path)):
            free = _free(path)
        if free < self._min_free:
            message = f"{_mib(free)} MiB free in /sysroot, staging needs at least {_mib(self._min_free)}"
            raise Terminal(message, reason=Reason.NO_SPACE, hint="free space: rpm-ostree cleanup -br, df -h /sysroot")

    async def _boot_space(self, state: SysrootState) -> None:
        names: dict[bool, set[str]] = {True: set(), False: set()}
        for deployment in state.deployments:
            entry = state.entries.get(deployment.id)
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
            hint = "free space: rpm-ostree cleanup -r, ostree admin status (pinned deployments), ls /boot"
            raise Refused(message, reason=Reason.BOOT_FULL, hint=hint)


def _driven(name: str, hint: str) -> Refused:
    return Refused(f"this host is updated by {name}", reason=Reason.OTHER_DRIVER, hint=hint)


def _free(path: Path) -> int:
    stat = os.statvfs(path)
    return stat.f_bavail * stat.f_frsize


def _size(directory: Path) -> int:
    # Files occupy whole blocks.
    return sum(-(-file.lstat().st_size // _BLOCK) * _BLOCK for file in directory.rglob("*"))


def _mib(size: int) -> int:
    return size >> 20
