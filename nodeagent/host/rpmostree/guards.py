"""Before staging: does somebody else update this host, and is there room?

Other drivers are not stopped by us and we not by them: the daemon refuses nobody over D-Bus. So we look: Zincati, the
driver that rpm-ostree's command line was told of, its own automatic updates, and bootc's timer. They are not switched
off: that is a decision about the host, and the hint has the command.

Room in /boot is found out too late otherwise: the kernel is copied there during the shutdown, and if it does not fit,
the old deployment boots again. libostree since 2023.7 makes room first, by dropping kernels that the new boot order has
no use for (``auto_early_prune_old_deployments``); before that all of them have to fit at once.
"""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Protocol

from nodeagent.core.plan.deployment import OsTarget
from nodeagent.core.update.ports import UnitState
from nodeagent.errors import AgentError, Refused, Unreconcilable
from nodeagent.host.fs.os_errors import translated
from nodeagent.host.rpmostree.gvariant import read_vardict, string
from nodeagent.host.rpmostree.output import output_of
from nodeagent.host.rpmostree.session import SERVICE, Session, State

__all__ = ["Guards", "Services", "native_bootc"]

_ZINCATI = "zincati.service"
_BOOTC_TIMER = "bootc-fetch-apply-updates.timer"
_OURS = "nodeagent.service"
_RUNS = ("active", "activating", "reloading")

_EARLY_PRUNE = (2023, 7)
_VERSION = re.compile(r"\bVersion: '?(\d{4})\.(\d+)")
_VERSION_TIMEOUT = 10.0  # seconds; a program that prints three lines
_BLOCK = 4096


class Services(Protocol):
    """What we need of systemd."""

    async def state(self, unit: str) -> UnitState: ...

    async def start(self, unit: str, deadline: float) -> None: ...

    async def restart(self, unit: str, deadline: float) -> object: ...


def native_bootc(root: Path) -> bool:
    """Whether the host was booted by bootc's own backend, which keeps its images without ostree. Known as bootc knows
    it itself: by an argument of the kernel. Blocks for two small files in memory."""
    if (root / "run/ostree-booted").exists():
        return False
    try:
        arguments = (root / "proc/cmdline").read_text(encoding="utf-8", errors="replace").split()
    except FileNotFoundError:
        return False
    return any(argument.startswith("composefs=") for argument in arguments)


def bootc_host() -> Unreconcilable:
    return Unreconcilable("this host is updated by bootc alone, there is no rpm-ostree on it", reason="BootcHost")


class Guards:
    """``min_free`` in bytes."""

    def __init__(self, services: Services, root: Path, min_free: int) -> None:
        self._services = services
        self._root = root
        self._min_free = min_free

    async def check(self, session: Session, target: OsTarget) -> None:
        """Raises ``Refused`` (``OtherDriver``, ``NoSpace``, ``BootFull``)."""
        await self._other_driver(session)
        await asyncio.to_thread(self._sysroot_space)
        if target.image is not None or target.removed or target.without_removed:
            await self._boot_space(await session.read())

    async def refuse_bootc(self) -> None:
        """Raises ``Unreconcilable`` (``BootcHost``) where ostree has nothing to do with what is booted, and the daemon,
        if it is installed at all, would only fail to start."""
        if await asyncio.to_thread(native_bootc, self._root):
            raise bootc_host()

    async def absent(self) -> Unreconcilable | None:
        """Why there is no daemon to ask, None if there should be one: then it is broken, not absent."""
        if (await self._services.state(SERVICE)).load != "not-found":
            return None
        if await asyncio.to_thread((self._root / "usr/bin/bootc").exists):
            return bootc_host()
        return Unreconcilable("this host has deployments, but no rpm-ostree to make one", reason="NoDeployments")

    # -- drivers --------------------------------------------------------------------------------------------------

    async def _other_driver(self, session: Session) -> None:
        for unit, name in ((_ZINCATI, "Zincati"), (_BOOTC_TIMER, "bootc's automatic update")):
            if await self._runs(unit):
                raise _driven(name, f"systemctl disable --now {unit}")
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
            if error.reason in ("UnitNotFound", "UnitMasked", "UnitInvalid"):
                return False
            raise

    def _registered(self) -> tuple[str, str]:
        """Name and unit of the driver that was registered with the daemon; it may have been stopped since."""
        path = self._root / "run/rpm-ostree/update-driver.gv"
        try:
            with path.open("rb") as file:
                values = read_vardict(file.read(1 << 16))
            return string(values.get("driver-name")) or "somebody", string(values.get("driver-sd-unit")) or ""
        except (FileNotFoundError, ValueError):
            return "", ""

    # -- room -----------------------------------------------------------------------------------------------------

    def _sysroot_space(self) -> None:
        path = self._root / "sysroot"
        with translated("look at", str(path)):
            free = _free(path)
        if free < self._min_free:
            message = f"{_mib(free)} MiB free in /sysroot, at least {_mib(self._min_free)} are wanted before staging"
            raise Refused(message, reason="NoSpace", hint="free space: rpm-ostree cleanup -br, df -h /sysroot")

    async def _boot_space(self, state: State) -> None:
        names: dict[bool, set[str]] = {True: set(), False: set()}
        for deployment in state.deployments:
            entry = state.entries.get(deployment.id)
            if entry is not None and (deployment.booted or deployment.pinned):
                names[deployment.booted].add(Path(entry.kernel).parent.name)
        prunes = await self._ostree_version() >= _EARLY_PRUNE
        await asyncio.to_thread(self._boot_fits, names[True], names[True] | names[False] if prunes else None)

    def _boot_fits(self, booted: set[str], needed: set[str] | None) -> None:
        """``needed``: directories of kernels that stay; None: all do."""
        boot = self._root / "boot"
        with translated("look at", str(boot)):
            if not (boot / "ostree").is_dir() or boot.stat().st_dev == (self._root / "sysroot").stat().st_dev:
                return  # one file system for all: then that was looked at already
            sizes = {d.name: _size(d) for d in (boot / "ostree").iterdir() if d.is_dir()}
            free = _free(boot)
        wants = sum(sizes.get(name, 0) for name in booted)  # the next kernel is about as large as this one
        frees = 0 if needed is None else sum(size for name, size in sizes.items() if name not in needed)
        if free + frees < wants:
            message = f"{_mib(free + frees)} MiB can be had in /boot, a kernel takes {_mib(wants)}"
            hint = (
                "remove what you do not need: rpm-ostree cleanup -r, ostree admin status (pinned deployments), ls /boot"
            )
            raise Refused(message, reason="BootFull", hint=hint)

    async def _ostree_version(self) -> tuple[int, int]:
        """(0, 0) if it cannot be found out."""
        output = await output_of("ostree", "--version", deadline=_VERSION_TIMEOUT)
        found = _VERSION.search(output)
        return (int(found[1]), int(found[2])) if found else (0, 0)


def _driven(name: str, hint: str) -> Refused:
    return Refused(f"updates of this host are driven by {name}", reason="OtherDriver", hint=hint)


def _free(path: Path) -> int:
    stat = os.statvfs(path)
    return stat.f_bavail * stat.f_frsize


def _size(directory: Path) -> int:
    return sum(-(-file.lstat().st_size // _BLOCK) * _BLOCK for file in directory.rglob("*"))


def _mib(size: int) -> int:
    return size >> 20
