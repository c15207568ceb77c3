"""Count the boots of a new deployment with the variables of GRUB, as greenboot does, or leave it to systemd-boot.

GRUB. The host counts if its grub.cfg does (``core.boot_count``). ``grub2-editenv`` writes the block: it truncates the
file, writes the 1024 bytes in one call, and flushes them; a rename would leave GRUB with the old blocks. It runs in a
transient unit, because /boot is read-only for nodeagent.service. Where it is so for the host too, it is remounted
around the command, as greenboot does. A mount namespace would not help: systemd makes one for each command of a unit.

One write sets the counter, its condition, and the deployment that it is for, so there is no half of them. When counting
ends, ``boot_success`` comes first, as in greenboot: a power cut between both writes leaves a counter that is still
known to be ours.

systemd-boot. It counts in the names of the entries if libostree names them so (``sysroot.boot-counting-tries``, since
2025.3), and systemd ends that after boot-complete.target. Nothing is written here.
"""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.core.boot_count import ENVIRONMENT_SIZE, BootCount, boot_count, counts_boots, parse_environment
from nodeagent.errors import AgentError, ServiceUnavailable, Terminal
from nodeagent.host.dbus.client import Bus
from nodeagent.host.rpmostree.deployments import BootEntries
from nodeagent.host.systemd_jobs import MANAGER, NAME, PATH, run_unit
from nodeagent.reasons import Reason

__all__ = ["HostBootCounter"]

_DIRECTORIES: Final = ("boot/grub2", "boot/grub")
_PROGRAMS: Final = ("usr/bin/grub2-editenv", "usr/bin/grub-editenv")
_BOOT: Final = "boot.mount"
_WRITABLE: Final = ("/usr/bin/mount", "-o", "remount,rw", "/boot")
# Of the mount only: the file system may be in use by another program that writes.
_READ_ONLY: Final = ("/usr/bin/mount", "-o", "remount,bind,ro", "/boot")
_OSTREE_CONFIG: Final = "ostree/repo/config"
_LOADER: Final = "sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"

# Seconds for one write; a slow disk flushes for some.
DEADLINE: Final = 60.0
# Bytes of a file that is read.
_MAX: Final = 1 << 20


# The boot loader counts, and nothing is to be written.
SYSTEMD_BOOT: Final = ""


@dataclass(frozen=True, slots=True)
class _Grub:
    """``environment`` and ``program`` are paths below the root of the host."""

    environment: Path
    program: Path
    count: BootCount


class HostBootCounter:
    """Implements ``ports.BootCounter``. ``enabled`` is the setting; what was begun is ended without it too."""

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

    async def problem(self) -> str:
        if not self._enabled:
            return "the setting os.count_boots is never"
        found = await asyncio.to_thread(self._grub)
        return found if isinstance(found, str) else ""

    async def read(self) -> BootCount:
        found = await asyncio.to_thread(self._grub)
        return BootCount() if isinstance(found, str) else found.count

    async def begin(self, deployment: str, tries: int) -> None:
        if await asyncio.to_thread(self._grub) == SYSTEMD_BOOT:
            return
        await self._edit("set", f"boot_counter={tries}", "boot_success=0", f"nodeagent_deployment={deployment}")
        count = await self.read()
        if (count.tries, count.deployment, count.success) != (tries, deployment, False):
            raise _failed("GRUB's variables are not as they were written")

    async def end(self) -> None:
        await self._edit("set", "boot_success=1")
        await self._edit("unset", "boot_counter", "nodeagent_deployment")
        if (await self.read()).counting:
            raise _failed("GRUB's variable boot_counter is still set")

    async def tries_left(self, deployment: str) -> int | None:
        entry = (await asyncio.to_thread(self._entries.read)).get(deployment)
        return None if entry is None else entry.tries_left

    async def _edit(self, *arguments: str) -> None:
        found = await asyncio.to_thread(self._grub)
        if isinstance(found, str):
            raise _failed(found)
        program, environment = (f"/{path.relative_to(self._root)}" for path in (found.program, found.environment))
        try:
            async with self._make_bus() as bus:
                before, after = (_WRITABLE, _READ_ONLY) if await _is_read_only(bus) else ((), ())
                command = (program, environment, *arguments)
                await run_unit(bus, command, "Count boots for nodeagent", self._deadline, before=before, after=after)
        except ServiceUnavailable:
            raise
        except AgentError as error:
            raise _failed(error.message) from error

    def _grub(self) -> _Grub | str:
        """Return what GRUB counts, ``SYSTEMD_BOOT``, or why the host does not count. Blocks for a few small files."""
        directories = (self._root / name for name in _DIRECTORIES)
        directory = next((found for found in directories if (found / "grub.cfg").exists()), None)
        if directory is None:
            return self._without_grub()
        try:
            config = _read(self._inside(directory / "grub.cfg"), _MAX)
            if not counts_boots(config.decode("utf-8", "replace")):
                return f"{self._shown(directory / 'grub.cfg')} does not count boots"
            environment = self._inside(directory / "grubenv")
            count = boot_count(parse_environment(_read(environment, ENVIRONMENT_SIZE)))
        except (OSError, ValueError) as error:
            return f"{self._shown(directory)} cannot be used: {getattr(error, 'strerror', None) or error}"
        program = next((self._root / name for name in _PROGRAMS if (self._root / name).is_file()), None)
        if program is None:
            return "there is no grub2-editenv"
        return _Grub(environment, program, count)

    def _without_grub(self) -> str:
        loader = ""
        with suppress(OSError):
            # Four bytes of attributes, then UTF-16.
            loader = _read(self._root / _LOADER, _MAX)[4:].decode("utf-16-le", "replace")
        if not loader.startswith("systemd-boot"):
            return "the boot loader is not GRUB"
        with suppress(OSError):
            for line in _read(self._root / _OSTREE_CONFIG, _MAX).decode("utf-8", "replace").splitlines():
                key, _, value = line.partition("=")
                if key.strip() == "boot-counting-tries" and value.strip() not in ("", "0"):
                    return SYSTEMD_BOOT
        return "systemd-boot counts only with sysroot.boot-counting-tries in the configuration of ostree"

    def _inside(self, path: Path) -> Path:
        """Return the file that ``path`` names. GRUB's directory may link to the EFI partition, which is below /boot."""
        found = path.resolve(strict=True)
        if not found.is_relative_to(self._root.resolve() / "boot"):
            raise OSError(0, f"{path.name} is a link out of /boot")
        return self._root / found.relative_to(self._root.resolve())

    def _shown(self, path: Path) -> str:
        return f"/{path.relative_to(self._root)}"


async def _is_read_only(bus: Bus) -> bool:
    """Return whether /boot is mounted read-only on the host. The mounts of nodeagent.service are others."""
    (unit,) = await bus.call(NAME, PATH, MANAGER, "LoadUnit", "s", (_BOOT,))
    if await bus.get(NAME, unit, f"{NAME}.Unit", "ActiveState") != "active":
        return False
    return "ro" in str(await bus.get(NAME, unit, f"{NAME}.Mount", "Options")).split(",")


def _read(path: Path, most: int) -> bytes:
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(0, f"{path.name} is no regular file")
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(0, f"{path.name} is too large")
    return data


def _failed(why: str) -> Terminal:
    return Terminal(f"cannot change the count of boots: {why}", reason=Reason.BOOT_COUNT_FAILED)
