# SPDX-License-Identifier: Apache-2.0
"""Count the boots of a new deployment with the variables of GRUB, as greenboot does, or leave it to systemd-boot.

GRUB. The host counts if its grub.cfg does (``decide``). The block is written over the old one: ``dd`` opens
the file without truncating it, writes the 1024 bytes in one call, and flushes them. So the file keeps its size and
its place on the disk, which GRUB reads without the journal of the file system, and a power cut leaves the old block or
the new one. ``grub2-editenv`` is not used: it truncates the file first, and a power cut then leaves an empty block,
with which GRUB starts entry 0. A rename would leave GRUB with the old place until the journal is written back.

The variables are the first part of the block, and what follows is the same ``#`` before and after. So a disk that
writes one sector of 512 bytes and not the other one leaves a whole block too, unless other programs fill that sector.

``dd`` runs in a transient unit, because /boot is read-only for nodeagent.service. Where it is so for the host too, it
is remounted around the command, as greenboot does. A mount namespace would not help: systemd makes one for each command
of a unit.

One write sets the counter, its condition, and the deployment that it is for, so there is no half of them. So does the
write that ends the count. Programs that edit the block have no lock: a change by another one, between the read and the
write of some tenths of a second, would be lost.

systemd-boot. It counts in the names of the entries if libostree names them so (``sysroot.boot-counting-tries``, since
2025.3), and systemd ends that after boot-complete.target. Nothing is written here.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.errors import AgentError, ServiceUnavailable, Terminal
from nodeagent.features.boot_counting.decide import (
    ENVIRONMENT_SIZE,
    BootCount,
    BootCounting,
    CountedBy,
    boot_count,
    counts_boots,
    edited_environment,
    parse_environment,
)
from nodeagent.features.boot_counting.reasons import BootCountingReason
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.codec import variant
from nodeagent.host.fs.read_inside import read_regular
from nodeagent.host.ostree.boot_order import BootEntries
from nodeagent.host.systemd_jobs import MANAGER, NAME, PATH, run_unit

_DIRECTORIES: Final = ("boot/grub2", "boot/grub")
# One write of the whole block from standard input, over the file that exists.
_WRITE: Final = (
    "/usr/bin/dd",
    f"bs={ENVIRONMENT_SIZE}",
    "count=1",
    "iflag=fullblock",
    "oflag=nofollow",
    "conv=notrunc,nocreat,fsync",
    "status=none",
)
_BOOT: Final = "boot.mount"
_WRITABLE: Final = ("/usr/bin/mount", "-o", "remount,rw", "/boot")
# Of the mount only: the file system may be in use by another program that writes.
_READ_ONLY: Final = ("/usr/bin/mount", "-o", "remount,bind,ro", "/boot")
_OSTREE_CONFIG: Final = "ostree/repo/config"
_GREENBOOT: Final = ("usr/lib/systemd/system", "etc/systemd/system")
_HEALTH_CHECK: Final = "greenboot-healthcheck.service"
_LOADER: Final = "sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"

# Seconds for one write; a slow disk flushes for some.
DEADLINE: Final = 60.0
# Bytes of a file that is read.
_MAX: Final = 1 << 20


# The boot loader counts, and nothing is to be written.
SYSTEMD_BOOT: Final = ""


@dataclass(frozen=True, slots=True)
class _Grub:
    """``environment`` is a path below the root of the host, ``block`` its content."""

    environment: Path
    block: bytes
    count: BootCount


class HostBootCounter:
    """Implements ``guard.BootCounter``. ``enabled`` is the setting; what was begun is ended without it too."""

    def __init__(
        self,
        *,
        enabled: bool = True,
        make_bus: Callable[[], Bus] = Bus,
        root: Path = Path("/"),
        deadline: float = DEADLINE,
    ) -> None:
        self._enabled = enabled
        self._make_bus = make_bus
        self._root = root
        self._deadline = deadline
        self._entries = BootEntries(root)

    async def counting(self) -> BootCounting:
        return await asyncio.to_thread(self._counting)

    def _counting(self) -> BootCounting:
        greenboot = any(os.path.lexists(self._root / place / _HEALTH_CHECK) for place in _GREENBOOT)
        if not self._enabled:
            return BootCounting(why="the setting os.count_boots is never", greenboot=greenboot)
        match self._grub():
            case _Grub():
                return BootCounting(CountedBy.GRUB, greenboot=greenboot)
            case "":
                return BootCounting(CountedBy.SYSTEMD_BOOT, greenboot=greenboot)
            case obstacle:
                return BootCounting(why=obstacle, greenboot=greenboot)

    async def read(self) -> BootCount:
        grub = await asyncio.to_thread(self._grub)
        return BootCount() if isinstance(grub, str) else grub.count

    async def begin(self, deployment: str, tries: int) -> None:
        if await asyncio.to_thread(self._grub) == SYSTEMD_BOOT:
            return
        values = {"boot_counter": str(tries), "boot_success": "0", "nodeagent_deployment": deployment}
        await self._edit(values)
        # Another program may have written the block in between, which only this read shows.
        count = await self.read()
        if (count.tries, count.deployment, count.success) != (tries, deployment, False):
            raise _failed("GRUB's variables are not as they were written")

    async def end(self) -> None:
        await self._edit({"boot_success": "1"}, unset=("boot_counter", "nodeagent_deployment"))
        if (await self.read()).counting:
            raise _failed("GRUB's variable boot_counter is still set")

    async def tries_left(self, deployment: str) -> int | None:
        entry = (await asyncio.to_thread(self._entries.read)).get(deployment)
        return None if entry is None else entry.tries_left

    async def _edit(self, values: Mapping[str, str], unset: Sequence[str] = ()) -> None:
        try:
            await asyncio.to_thread(self._counting_grub)
            async with self._make_bus() as bus:
                before, after = (_WRITABLE, _READ_ONLY) if await _is_read_only(bus) else ((), ())
                # Read as late as possible: other programs edit the block too.
                grub = await asyncio.to_thread(self._counting_grub)
                block = edited_environment(grub.block, values, unset)
                command = (*_WRITE, f"of={self._shown(grub.environment)}")
                data = [("StandardInput", variant("s", "data")), ("StandardInputData", variant("ay", block))]
                about = "Count boots for nodeagent"
                await run_unit(bus, command, about, self._deadline, before=before, after=after, more=data)
        except ServiceUnavailable:
            raise
        except ValueError as error:
            raise _failed(str(error)) from error
        except AgentError as error:
            raise _failed(error.message) from error

    def _counting_grub(self) -> _Grub:
        """Raises ``ValueError`` with the reason if GRUB does not count here. Blocks."""
        match self._grub():
            case _Grub() as grub:
                return grub
            case obstacle:
                raise ValueError(obstacle)

    def _grub(self) -> _Grub | str:
        """Return the count of GRUB, ``SYSTEMD_BOOT``, or why the host does not count. Blocks for a few small files."""
        directories = (self._root / name for name in _DIRECTORIES)
        directory = next((folder for folder in directories if (folder / "grub.cfg").exists()), None)
        if directory is None:
            return self._without_grub()
        try:
            config = read_regular(self._inside(directory / "grub.cfg"), _MAX)
            if not counts_boots(config.decode("utf-8", "replace")):
                return f"{self._shown(directory / 'grub.cfg')} does not count boots"
            environment = self._inside(directory / "grubenv")
            block = read_regular(environment, ENVIRONMENT_SIZE)
            count = boot_count(parse_environment(block))
        except (OSError, ValueError) as error:
            name = getattr(error, "filename", None)
            cause = f"{Path(name).name}: {error.strerror}" if isinstance(error, OSError) and name else str(error)
            return f"{self._shown(directory)} cannot be used: {cause}"
        return _Grub(environment, block, count)

    def _without_grub(self) -> str:
        loader = ""
        with suppress(OSError):
            # Four bytes of attributes, then UTF-16.
            loader = read_regular(self._root / _LOADER, _MAX)[4:].decode("utf-16-le", "replace")
        if not loader.startswith("systemd-boot"):
            return "the boot loader is not GRUB"
        with suppress(OSError):
            for line in read_regular(self._root / _OSTREE_CONFIG, _MAX).decode("utf-8", "replace").splitlines():
                key, _, value = line.partition("=")
                if key.strip() == "boot-counting-tries" and value.strip() not in ("", "0"):
                    return SYSTEMD_BOOT
        return "systemd-boot counts only with sysroot.boot-counting-tries in the configuration of ostree"

    def _inside(self, path: Path) -> Path:
        """Return the file that ``path`` names. GRUB's directory may link to the EFI partition, which is below /boot."""
        target = path.resolve(strict=True)
        if not target.is_relative_to(self._root.resolve() / "boot"):
            raise ValueError(f"{path.name} is a link out of /boot")
        return self._root / target.relative_to(self._root.resolve())

    def _shown(self, path: Path) -> str:
        return f"/{path.relative_to(self._root)}"


async def _is_read_only(bus: Bus) -> bool:
    """Return whether /boot is mounted read-only on the host. The mounts of nodeagent.service are others."""
    (unit,) = await bus.call(NAME, PATH, MANAGER, "LoadUnit", "s", (_BOOT,))
    if await bus.get(NAME, unit, f"{NAME}.Unit", "ActiveState") != "active":
        return False
    return "ro" in str(await bus.get(NAME, unit, f"{NAME}.Mount", "Options")).split(",")


def _failed(cause: str) -> Terminal:
    return Terminal(f"cannot change the count of boots: {cause}", reason=BootCountingReason.BOOT_COUNT_FAILED)
