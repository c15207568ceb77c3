# SPDX-License-Identifier: Apache-2.0
"""The bootloader as bootupd manages it, and what the firmware and the trees of deployments say about it.

bootupctl needs a writable /boot and the right to mount, which nodeagent.service drops, so it runs in transient units of
systemd, and always from the tree of the OS whose bootloader is meant: only that bootupctl knows what it stores itself.
``INVOCATION_ID``, which systemd sets, keeps it from starting a unit of its own. An update runs in a unit with a fixed
name, so that a second one cannot run beside it after a kill of the agent.

``bootupctl update`` knows no choice of components. Without the metadata of BIOS it leaves the boot sectors alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nodeagent.core.display import text
from nodeagent.core.plan.deployment import Deployment
from nodeagent.errors import AgentError, Refused, ServiceUnavailable
from nodeagent.features.bootloader.boot_chain import BIOS, has_efi, read_chain, unfit_payload
from nodeagent.features.bootloader.decide.check import (
    EFI,
    MAX_JSON,
    BootloaderCheck,
    BootloaderContent,
    BootloaderState,
    BootloaderStatus,
    compare,
    judge,
    parse_payload,
    parse_status,
)
from nodeagent.features.bootloader.reasons import BootloaderReason
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.codec import variant
from nodeagent.host.dbus.errors import BusFault
from nodeagent.host.fs.read_inside import read_inside
from nodeagent.host.systemd_jobs import MANAGER, NAME, PATH, UNIT_EXISTS, run_unit

BOOTUPCTL: Final = "/usr/bin/bootupctl"
UNIT: Final = "nodeagent-bootloader.service"

_UPDATES: Final = "/usr/lib/bootupd/updates"

# Mounts of the host that bootupctl needs: the partitions, devices with their descriptions, and the firmware. Not all of
# /run: systemd has files of its own there for a unit in another tree, and fails where it finds those of the host.
# bootupd's lock there keeps no other bootupd away: each one replaces the file before it locks it.
_MOUNTS: Final = ("/boot", "/dev", "/run/ostree-booted", "/run/udev", "/sys", "/sysroot")
_RECURSIVE: Final = 0x4000

# Bytes of shim and GRUB for EFI, which are copied to memory.
_MAX_PAYLOAD: Final = 128 << 20

_MICROSECONDS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class BootupdTiming:
    """Seconds. A status takes less than one; an update writes some megabytes to a slow FAT file system."""

    status: float = 60.0
    update: float = 300.0
    # For a bootupctl that ends on SIGTERM when its file is written.
    stop: float = 60.0
    poll: float = 1.0


class BootupdBootloader:
    """Implements ``ports.Bootloader``. ``make_bus`` makes a connection to the system bus for each call.

    ``root`` and ``runtime`` are for tests; ``runtime`` is a directory that only root can write.
    """

    def __init__(
        self,
        make_bus: Callable[[], Bus] = Bus,
        *,
        root: Path = Path("/"),
        runtime: Path = Path("/run/nodeagent"),
        timing: BootupdTiming | None = None,
    ) -> None:
        self._make_bus = make_bus
        self._root = root
        self._runtime = runtime
        self._timing = timing or BootupdTiming()

    async def check(self, staged: Deployment | None) -> BootloaderCheck | None:
        if not await asyncio.to_thread(self._has_bootupctl, self._root):
            return None
        tree = self._tree(staged)
        obstacle, status = "", BootloaderStatus()
        try:
            status = await self._status(tree)
        except ServiceUnavailable:
            raise
        except (AgentError, ValueError, OSError) as error:
            obstacle = f"bootupctl status: {error}"
        return await asyncio.to_thread(self._compare, status, text(obstacle, 400), tree)

    def _compare(self, status: BootloaderStatus, obstacle: str, tree: Path) -> BootloaderCheck:
        component = EFI if has_efi(self._root) else BIOS
        installed, available = status.installed.get(component), None
        try:
            payload = self._payload(tree, component)
            available = status.available.get(component, payload)
        except FileNotFoundError:
            obstacle = obstacle or f"the OS brings no bootloader for {component}"
        except (AgentError, ValueError, OSError) as error:
            obstacle = obstacle or f"the metadata of the OS: {error}"
        if installed is None:
            adopt = component in status.adoptable
            offer = ", which could take it over" if adopt else ""
            obstacle = obstacle or f"{component} is not managed by bootupd{offer}"
        state = BootloaderState.UNKNOWN
        if installed is not None and available is not None:
            state = compare(installed, available)
        chain = read_chain(self._root, tree)
        kernel, updated = judge(chain, state)
        return BootloaderCheck(
            component=component,
            state=state,
            installed=_shown(installed),
            available=_shown(available),
            secure_boot=chain.secure_boot,
            kernel=kernel,
            kernel_after_update=updated,
            unfit=unfit_payload(self._root, tree) if component == EFI and chain.secure_boot else "",
            why=obstacle if state is BootloaderState.UNKNOWN else "",
            revoked=chain.revoked if chain.secure_boot else "",
        )

    async def update(self, staged: Deployment | None, *, bios: bool) -> None:
        tree = self._tree(staged)
        if not await asyncio.to_thread(self._has_bootupctl, tree):
            raise Refused(f"the OS has no {BOOTUPCTL}", reason=BootloaderReason.BOOTLOADER_UPDATE_FAILED)
        try:
            only_efi = [] if bios else await asyncio.to_thread(self._only_efi, tree)
            await self._run_alone([*self._inside(tree), *_mounted(only_efi, read_only=True)])
        except ServiceUnavailable:
            raise
        except (AgentError, OSError) as error:
            message = f"the update of the bootloader failed: {error}"
            raise Refused(message, reason=BootloaderReason.BOOTLOADER_UPDATE_FAILED) from error
        finally:
            await asyncio.to_thread(shutil.rmtree, self._runtime / "bootloader", ignore_errors=True)

    async def _run_alone(self, properties: Sequence[tuple[str, Any]]) -> None:
        """Run the update when no other one runs, which an agent that was killed may have left."""
        timing, loop = self._timing, asyncio.get_running_loop()
        give_up = loop.time() + timing.update + timing.stop
        async with self._make_bus() as bus:
            while True:
                try:
                    return await run_unit(
                        bus,
                        (BOOTUPCTL, "update"),
                        "Update the bootloader for nodeagent",
                        timing.update,
                        name=UNIT,
                        more=[*properties, ("TimeoutStopUSec", variant("t", int(timing.stop * _MICROSECONDS)))],
                    )
                except BusFault as error:
                    if error.bus_error != UNIT_EXISTS or loop.time() >= give_up:
                        raise
                # A unit that failed stays loaded until that is acknowledged; one that runs is not affected.
                with contextlib.suppress(BusFault):
                    await bus.call(NAME, PATH, MANAGER, "ResetFailedUnit", "s", (UNIT,))
                await asyncio.sleep(timing.poll)

    async def _status(self, tree: Path) -> BootloaderStatus:
        """Raises ``ValueError`` for an unexpected output, and as ``run_unit``."""
        await asyncio.to_thread(self._runtime.mkdir, mode=0o755, exist_ok=True)
        output = self._runtime / f"bootloader-{secrets.token_hex(4)}.json"
        properties = [
            *self._inside(tree),
            ("StandardOutputFile", variant("s", str(output))),
            # The unit is killed when it writes more.
            ("LimitFSIZE", variant("t", MAX_JSON)),
        ]
        command = (BOOTUPCTL, "status", "--json")
        try:
            async with self._make_bus() as bus:
                await run_unit(bus, command, "Read the bootloader for nodeagent", self._timing.status, more=properties)
            return parse_status(await asyncio.to_thread(read_inside, self._runtime, f"/{output.name}", MAX_JSON))
        finally:
            await asyncio.to_thread(output.unlink, missing_ok=True)

    def _inside(self, tree: Path) -> list[tuple[str, Any]]:
        """Return the properties of a unit that runs in ``tree``."""
        # The tree of a deployment shares its files with others. "+" is for a path in the tree, not on the host.
        properties = [("PrivateNetwork", variant("b", True)), ("ReadOnlyPaths", variant("as", ["+/usr"]))]
        if tree == self._root:
            return properties
        mounts = [(path, path) for path in _MOUNTS]
        # The default before systemd 247 was a tree without /proc.
        root = [("RootDirectory", variant("s", str(tree))), ("MountAPIVFS", variant("b", True))]
        return [*properties, *root, *_mounted(mounts)]

    def _only_efi(self, tree: Path) -> list[tuple[str, str]]:
        """Copy the payload of EFI alone, and return the mount that puts it into place.

        A mount of ``tree``'s own files below that one would find them hidden by it: the unit's root is ``tree`` itself.
        """
        metadata = read_inside(tree, f"{_UPDATES}/EFI.json", MAX_JSON)
        made, files = self._runtime / "bootloader", tree / _UPDATES.lstrip("/") / EFI
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        (made / "EFI.json").write_bytes(metadata)
        if files.is_dir() and not files.is_symlink():
            if sum(path.lstat().st_size for path in files.rglob("*")) > _MAX_PAYLOAD:
                raise Refused(
                    f"{files} has more than {_MAX_PAYLOAD >> 20} MiB", reason=BootloaderReason.BOOTLOADER_UPDATE_FAILED
                )
            shutil.copytree(files, made / EFI, symlinks=True)
        return [(str(made), _UPDATES)]

    def _payload(self, tree: Path, component: str) -> BootloaderContent:
        return parse_payload(read_inside(tree, f"{_UPDATES}/{component}.json", MAX_JSON))

    def _tree(self, staged: Deployment | None) -> Path:
        if staged is None:
            return self._root
        deploy = self._root / "ostree/deploy" / staged.osname / "deploy"
        return deploy / staged.id.removeprefix(f"{staged.osname}-")

    def _has_bootupctl(self, tree: Path) -> bool:
        return os.path.lexists(tree / BOOTUPCTL.lstrip("/"))


def _mounted(mounts: Sequence[tuple[str, str]], *, read_only: bool = False) -> list[tuple[str, Any]]:
    """Return the property for mounts, which are sources and destinations; a missing source is left out."""
    if not mounts:
        return []
    name = "BindReadOnlyPaths" if read_only else "BindPaths"
    return [(name, variant("a(ssbt)", [[source, path, True, _RECURSIVE] for source, path in mounts]))]


def _shown(content: BootloaderContent | None) -> str:
    return text(content.version, 200) if content is not None else ""
