"""Which boot of the userspace this is, as PID 1 knows it.

Facts (systemd's ``src/core/dbus-manager.c``): the property ``SoftRebootsCount`` of the manager is there since systemd
256. 254 and 255 can reboot softly and do not count; there ``UserspaceTimestampMonotonic`` changes with each soft
reboot, and with nothing else: it is kept when systemd executes itself again. Older versions know no soft reboot, so
for them it never changes. What it was at first is noted in /run, which outlives a soft reboot and nothing more.

PID 1 may be busy, with a reload of its units above all, and the agent has to start. So it is asked a few times, and
then the last count that was noted is used.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from nodeagent import log
from nodeagent.core.boot import identity
from nodeagent.core.config.text import plain_json
from nodeagent.errors import AgentError
from nodeagent.host.dbus.client import Bus
from nodeagent.host.fs.atomic import temp_name
from nodeagent.host.fs.os_errors import translated

__all__ = ["identify", "kernel_boot_id"]

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_NOTE = "run/nodeagent/boot.json"
_MAX = 4096  # bytes of the note

_NAME = "org.freedesktop.systemd1"
_PATH = "/org/freedesktop/systemd1"
_MANAGER = "org.freedesktop.systemd1.Manager"
_COUNT = "SoftRebootsCount"
_USERSPACE = "UserspaceTimestampMonotonic"

ATTEMPTS = 4
CALL_TIMEOUT = 10.0  # seconds; a reload of a thousand units on a slow disk takes a few
PAUSE = 1.0  # seconds between two attempts


async def identify(bus: Bus, *, root: Path = Path("/"), timeout: float = CALL_TIMEOUT, pause: float = PAUSE) -> str:
    """The identity of this boot (``core.boot``). Raises nothing of the bus: without an answer it is the last one that
    was noted in this boot of the kernel."""
    boot_id, path = kernel_boot_id(), root / _NOTE
    noted = await asyncio.to_thread(_read, path, boot_id)
    for left in reversed(range(ATTEMPTS)):
        try:
            found = await _ask(bus, noted, timeout)
            await _note(path, noted, found, boot_id)
            return identity(boot_id, found["count"])
        except AgentError as error:
            if not left:
                text = f"whether this host was rebooted softly cannot be found out: {error}"
                log.get(__name__).warning(text, reason=error.reason)
        await asyncio.sleep(pause if left else 0)
    return identity(boot_id, noted.get("count", 0))


async def _note(path: Path, noted: Mapping[str, int], found: Mapping[str, int], boot_id: str) -> None:
    if found != noted:
        with suppress(AgentError):  # a /run without room: the next start asks again
            await asyncio.to_thread(_write, path, {"boot_id": boot_id, **found})


async def _ask(bus: Bus, noted: Mapping[str, int], timeout: float) -> Mapping[str, int]:
    """``count``, and ``userspace`` where it had to be found out by that."""
    try:
        return {"count": int(await bus.get(_NAME, _PATH, _MANAGER, _COUNT, timeout=timeout))}
    except AgentError as error:
        if error.reason not in ("UnknownProperty", "InvalidArgs"):
            raise
    userspace = int(await bus.get(_NAME, _PATH, _MANAGER, _USERSPACE, timeout=timeout))
    count = noted.get("count", 0)
    return {"count": count + (noted.get("userspace", userspace) != userspace), "userspace": userspace}


def kernel_boot_id() -> str:
    """Of a file in /proc, which blocks nobody."""
    fd = os.open(_BOOT_ID, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(fd, 64).decode(errors="replace").strip()
    finally:
        os.close(fd)


def _read(path: Path, boot_id: str) -> dict[str, int]:
    """What was noted in this boot of the kernel; empty if that is nothing, or cannot be understood."""
    try:
        with path.open("rb") as file:
            noted: dict[str, Any] = plain_json.loads(file.read(_MAX))
        if noted.pop("boot_id") != boot_id:
            return {}
        return {key: int(noted[key]) for key in ("count", "userspace") if key in noted}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _write(path: Path, values: Mapping[str, Any]) -> None:
    with translated("note the boot at", str(path)):
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        temp = path.with_name(temp_name())
        temp.write_text(json.dumps(values), encoding="utf-8")
        temp.replace(path)
