# SPDX-License-Identifier: Apache-2.0
"""The identity of this boot of the userspace, from PID 1.

Facts (systemd's ``src/core/dbus-manager.c``): the manager has the property ``SoftRebootsCount`` since systemd 256. 254
and 255 support soft reboots without a count; their ``UserspaceTimestampMonotonic`` changes with each soft reboot only,
because re-executing systemd keeps it. Older versions have no soft reboot, so it never changes. The first value is
recorded in /run, which survives soft reboots only.

PID 1 may be busy, for example with a reload of its units, while the agent must start. Therefore it is queried a few
times, and then the last recorded count is used.
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
from nodeagent.host.systemd_jobs import MANAGER, NAME, PATH
from nodeagent.reasons import Reason

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_RECORD = "run/nodeagent/boot.json"
# Bytes of the record.
_MAX = 4096

_COUNT = "SoftRebootsCount"
_USERSPACE = "UserspaceTimestampMonotonic"
_FIRMWARE = "FirmwareTimestampMonotonic"
# Wall clock.
_KERNEL = "KernelTimestamp"

ATTEMPTS = 4
# Seconds; a reload of a thousand units on a slow disk takes a few.
CALL_TIMEOUT = 10.0
# Seconds between two attempts.
PAUSE = 1.0


async def identify(bus: Bus, *, root: Path = Path("/"), timeout: float = CALL_TIMEOUT, pause: float = PAUSE) -> str:
    """Return the identity of this boot (``core.boot``).

    Raises no error of the bus: without an answer it returns the last identity that was recorded in this kernel boot.
    """
    boot_id, path = kernel_boot_id(), root / _RECORD
    recorded = await asyncio.to_thread(_read, path, boot_id)
    for left in reversed(range(ATTEMPTS)):
        try:
            counters = await _query(bus, recorded, timeout)
            await _save(path, recorded, counters, boot_id)
            return identity(boot_id, counters["count"])
        except AgentError as error:
            if not left:
                text = f"the number of soft reboots is unknown: {error}"
                log.get(__name__).warning(text, reason=error.reason)
        await asyncio.sleep(pause if left else 0)
    return identity(boot_id, recorded.get("count", 0))


def kernel_start_seconds(root: Path = Path("/")) -> float | None:
    """Return the time from power-on to the start of the userspace, as far as systemd knows it; None if it does not.

    That is what ``systemd-analyze`` shows as firmware, loader, kernel and initrd. Blocks for a small file in memory.
    """
    started = _read(root / _RECORD, kernel_boot_id()).get("kernel_start")
    return None if started is None else started / 1e6


async def _save(path: Path, recorded: Mapping[str, int], counters: Mapping[str, int], boot_id: str) -> None:
    if counters != recorded:
        # /run is full: the next start queries again.
        with suppress(AgentError):
            await asyncio.to_thread(_write, path, {"boot_id": boot_id, **counters})


async def _query(bus: Bus, recorded: Mapping[str, int], timeout: float) -> Mapping[str, int]:
    """Return ``count``, and ``userspace`` if the count was derived from it."""
    try:
        count = int(await bus.get(NAME, PATH, MANAGER, _COUNT, timeout=timeout))
        return {"count": count, **await _kernel_start(bus, recorded, count, timeout)}
    except AgentError as error:
        if error.reason not in (Reason.UNKNOWN_PROPERTY, Reason.INVALID_ARGS):
            raise
    userspace = int(await bus.get(NAME, PATH, MANAGER, _USERSPACE, timeout=timeout))
    count = recorded.get("count", 0)
    return {"count": count + (recorded.get("userspace", userspace) != userspace), "userspace": userspace}


async def _kernel_start(bus: Bus, recorded: Mapping[str, int], count: int, timeout: float) -> Mapping[str, int]:
    """Return ``kernel_start`` in microseconds, which systemd knows until the first soft reboot; empty if unknown."""
    if "kernel_start" in recorded or count:
        return {key: recorded[key] for key in ("kernel_start",) if key in recorded}
    values = {}
    for name in (_KERNEL, _FIRMWARE, _USERSPACE):
        # It is for information only.
        with suppress(AgentError, ValueError, TypeError):
            values[name] = int(await bus.get(NAME, PATH, MANAGER, name, timeout=timeout))
    # A container has no kernel of its own.
    if not values.get(_KERNEL) or not values.get(_USERSPACE):
        return {}
    # The time of the firmware is counted back from the start of the kernel, and 0 without EFI.
    return {"kernel_start": values.get(_FIRMWARE, 0) + values[_USERSPACE]}


def kernel_boot_id() -> str:
    """Return the boot id of the kernel. Reading it from /proc does not block."""
    fd = os.open(_BOOT_ID, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(fd, 64).decode(errors="replace").strip()
    finally:
        os.close(fd)


def _read(path: Path, boot_id: str) -> dict[str, int]:
    """Return the record of this kernel boot, empty if it is missing or cannot be read."""
    try:
        with path.open("rb") as file:
            recorded: dict[str, Any] = plain_json.loads(file.read(_MAX))
        if recorded.pop("boot_id") != boot_id:
            return {}
        return {key: int(recorded[key]) for key in ("count", "userspace", "kernel_start") if key in recorded}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _write(path: Path, values: Mapping[str, Any]) -> None:
    with translated("record the boot at", str(path)):
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        temp = path.with_name(temp_name())
        temp.write_text(json.dumps(values), encoding="utf-8")
        temp.replace(path)
