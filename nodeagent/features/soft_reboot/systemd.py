# SPDX-License-Identifier: Apache-2.0
"""Check whether this host can make a soft reboot: one that starts the same system again, or a deployment of ours.

Facts
- ``soft-reboot.target`` exists since systemd 254; a distribution may leave it out, and an admin may mask it. Before 254
  logind and systemd do not know a soft reboot.
- systemd switches to /run/nextroot if there is an operating system in it. libostree mounts a deployment there
  (``ostree admin prepare-soft-reboot``) and writes /run/ostree/nextroot-booted. Such a soft reboot is an update of the
  OS by another program, and not the reboot that is due here.
- An encrypted device of the root file system is closed and opened again, which fails and ends in emergency mode, unless
  its line in crypttab has ``x-initrd.attach`` (crypttab(5)). Which device the root file system needs is not certain, so
  each open one counts. Its name and kind are in sysfs, which needs no privilege.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

from nodeagent.core.display import text
from nodeagent.errors import NoSoftReboot
from nodeagent.features.soft_reboot.reasons import SoftRebootReason
from nodeagent.host.dbus.client import Bus
from nodeagent.host.fs.read_inside import read_regular
from nodeagent.host.systemd_jobs import MANAGER, NAME, PATH

TARGET: Final = "soft-reboot.target"

_UNIT: Final = f"{NAME}.Unit"
# Seconds for each of two calls; a manager that reloads its units takes some.
CALL_TIMEOUT: Final = 30.0

_NEXT_ROOT: Final = "run/nextroot"
_PREPARED: Final = "run/ostree/nextroot-booted"
_MOUNTS: Final = "proc/self/mountinfo"
_CRYPTTAB: Final = "etc/crypttab"
_BLOCK: Final = "sys/class/block"
_ATTACH: Final = "x-initrd.attach"

# Bytes of a file that is read, and characters of a name in a message.
_MAX_FILE: Final = 1 << 20
_MAX_NAME: Final = 100


async def check_soft_reboot(bus: Bus, root: Path = Path("/"), *, same_system: bool = True) -> None:
    """Raise ``NoSoftReboot`` if a soft reboot is not possible, or would start another system.

    Without ``same_system`` another one may be prepared: the adapter of the deployments checks which one it is.

    The reasons are ``SoftRebootUnsupported``, ``NextRootPrepared`` and ``EncryptedRoot``. A state that cannot be read
    counts as an obstacle. Raises also the errors of the bus.
    """
    (unit,) = await bus.call(NAME, PATH, MANAGER, "LoadUnit", "s", (TARGET,), timeout=CALL_TIMEOUT)
    state = await bus.get(NAME, unit, _UNIT, "LoadState", timeout=CALL_TIMEOUT)
    if state != "loaded":
        # "not-found" before systemd 254.
        message = f"{TARGET} is {text(str(state), _MAX_NAME)}"
        raise NoSoftReboot(message, reason=SoftRebootReason.SOFT_REBOOT_UNSUPPORTED)
    await asyncio.to_thread(_check_files, root, same_system)


def _check_files(root: Path, same_system: bool) -> None:
    if same_system and (obstacle := _next_root(root)):
        raise NoSoftReboot(
            f"another program prepared another system: {obstacle}", reason=SoftRebootReason.NEXT_ROOT_PREPARED
        )
    if obstacle := _encrypted(root):
        raise NoSoftReboot(f"the encrypted device {obstacle}", reason=SoftRebootReason.ENCRYPTED_ROOT)


def _next_root(root: Path) -> str:
    """Return the system prepared for the next soft reboot, "" for none. An earlier one leaves an empty directory."""
    if os.path.lexists(root / _PREPARED):
        return f"/{_PREPARED} exists"
    try:
        if any(f" /{_NEXT_ROOT} " in line for line in _lines(root / _MOUNTS)):
            return f"/{_NEXT_ROOT} is mounted"
        # A link that leads to an operating system counts, so any link does.
        if (root / _NEXT_ROOT).is_symlink():
            return f"/{_NEXT_ROOT} is a link"
        with os.scandir(root / _NEXT_ROOT) as entries:
            return f"/{_NEXT_ROOT} is not empty" if next(entries, None) is not None else ""
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"/{_NEXT_ROOT} cannot be read ({error.strerror})"


def _encrypted(root: Path) -> str:
    """Return the first open encrypted device that a soft reboot may lose, with the cause; "" for none."""
    try:
        opened = sorted(_open_devices(root))
    except OSError as error:
        return f"is not known: /{_BLOCK} cannot be read ({error.strerror})"
    if not opened:
        return ""
    try:
        attached = {name for name, options in _crypttab(root) if _ATTACH in options}
    except OSError as error:
        return f"{opened[0]} is open, and /{_CRYPTTAB} cannot be read ({error.strerror})"
    return next((f"{name} has no {_ATTACH} in /{_CRYPTTAB}" for name in opened if name not in attached), "")


def _open_devices(root: Path) -> list[str]:
    """Return the names of the devices of device mapper that dm-crypt made."""
    try:
        devices = [path for path in (root / _BLOCK).iterdir() if path.name.startswith("dm-")]
    except FileNotFoundError:
        # No sysfs: a container.
        return []
    names = []
    for device in devices:
        try:
            if (device / "dm/uuid").read_text(errors="replace").startswith("CRYPT-"):
                names.append(text((device / "dm/name").read_text(errors="replace").strip(), _MAX_NAME))
        except FileNotFoundError:
            # It was closed in the meantime.
            continue
    return names


def _crypttab(root: Path) -> list[tuple[str, list[str]]]:
    """Return the names and the options of crypttab; a missing file has none."""
    try:
        lines = _lines(root / _CRYPTTAB)
    except FileNotFoundError:
        return []
    fields = [line.split() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return [(entry[0], entry[3].split(",") if len(entry) > 3 else []) for entry in fields]


def _lines(path: Path) -> list[str]:
    return read_regular(path, _MAX_FILE).decode(errors="replace").splitlines()
