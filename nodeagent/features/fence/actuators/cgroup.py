# SPDX-License-Identifier: Apache-2.0
"""IoLimits of the I/O of one unit, set through systemd while an update is staged.

The facts behind it (systemd's ``org.freedesktop.systemd1(5)``, ``src/core/dbus-cgroup.c``, its issue 27302):
- Properties set with runtime=true are a drop-in below /run: they hold for a unit that is not running yet, or starts
  again, and disappear at a reboot. Removing the drop-in does not lift the limit of a running unit; setting it does.
- A list of (path, value) is merged by path into the one that is there; an empty one removes all of it; UINT64_MAX is
  no limit. So the original value is restored as "nothing, then that value".
- systemd writes to the cgroup after its reply. So ``io.max`` is read until the kernel has the limit.

The original values are written to the restore log before the first change, and restored by ``end``, or by ``recover``
after a kill.
"""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from nodeagent.core.config.text import plain_json
from nodeagent.errors import Retryable, Terminal
from nodeagent.features.fence.decide.disks import BlockNode
from nodeagent.features.fence.reasons import FenceReason
from nodeagent.features.fence.restore_log import RestoreLog
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.codec import variant
from nodeagent.host.fs.os_errors import translated
from nodeagent.host.systemd_jobs import MANAGER, NAME, PATH

_KEY = "unit-"
_CGROUPS = Path("/sys/fs/cgroup")
_IO_MAX = "io.max"
_WROTE = "wbytes="
_DIRTY = ("file_dirty", "file_writeback")

_BANDWIDTH, _IOPS = "IOWriteBandwidthMax", "IOWriteIOPSMax"
_LISTS = (_BANDWIDTH, _IOPS)

# Seconds for the kernel to have a limit.
_AGREES_WITHIN = 3.0
_POLL = 0.05

_NO_LIMIT = 2**64 - 1

# The limits of a cgroup, by device number and then by rbps, wbps, riops and wiops; without those that have none.
IoMax = Mapping[str, Mapping[str, int]]


class UnitIo:
    """The limits of one service or slice. Call ``begin`` first; all methods raise only ``AgentError``."""

    def __init__(self, bus: Bus, restore_log: RestoreLog, unit: str, cgroups: Path = _CGROUPS) -> None:
        self._bus = bus
        self._restore_log = restore_log
        self._unit = unit
        self._key = f"{_KEY}{unit}"
        self._cgroups = cgroups

    async def begin(self) -> None:
        """Save the original values, once. ``Terminal`` (``NoIoControl``) on a host where systemd cannot set limits:
        cgroup v1, or no io controller."""
        if "io" not in (await asyncio.to_thread(_text, self._cgroups / "cgroup.controllers")).split():
            message = f"{self._cgroups}: no cgroup v2 with an io controller, so nothing is limited"
            raise Terminal(message, reason=FenceReason.NO_IO_CONTROL)
        # The log of a killed agent has the original values. The present ones are its limits.
        if self._key in await self._restore_log.load():
            return
        limits = {name: await self._get(name) for name in _LISTS}
        await self._restore_log.save(self._key, json.dumps(limits))

    async def hold(self, disk: BlockNode, write_bps: int | None, write_iops: int | None) -> None:
        """Set the limits on ``disk``; None: no limit. ``Retryable`` (``LimitNotHeld``) if the unit runs and
        the kernel has another limit."""
        values = {_BANDWIDTH: write_bps, _IOPS: write_iops}
        limits = {name: _NO_LIMIT if value is None else value for name, value in values.items()}
        await self._set({name: [[disk.path, value]] for name, value in limits.items()})
        wanted = {"wbps": write_bps, "wiops": write_iops}
        number = str(disk.number)
        held = await self._settled(
            lambda io_max: all(io_max.get(number, {}).get(key) == value for key, value in wanted.items())
        )
        if held is not None:
            message = f"{self._unit}: requested {wanted} on {number}, the kernel has {held}"
            raise Retryable(message, reason=FenceReason.LIMIT_NOT_HELD)

    async def end(self) -> None:
        """Restore the original values; no effect without ``begin``. If that fails, the entry of the log stays."""
        note = (await self._restore_log.load()).get(self._key)
        if note is None:
            return
        original = self._read_note(note)
        now = {name: await self._get(name) for name in original}
        changed = {name: value for name, value in original.items() if now[name] != value}
        # systemd adds to these lists. Only an empty list removes the earlier entries.
        await self._set(dict.fromkeys(changed, ()))
        await self._set({name: value for name, value in changed.items() if value})
        # An admin may have limits on any device.
        if not any(original[name] for name in _LISTS):
            held = await self._settled(lambda io_max: not any({"wbps", "wiops"} & at.keys() for at in io_max.values()))
            if held is not None:
                message = f"{self._unit}: the kernel still limits its writes ({held})"
                raise Retryable(message, reason=FenceReason.LIMITS_NOT_RESET)
        await self._restore_log.clear(self._key)

    def _read_note(self, note: str) -> Mapping[str, Sequence[Any]]:
        try:
            limits = plain_json.loads(note)
            return {name: [[str(path), int(value)] for path, value in limits[name]] for name in _LISTS}
        except (ValueError, TypeError, KeyError) as error:
            message = f"{self._unit}: its entry in the restore log cannot be read"
            raise Terminal(message, reason=FenceReason.LIMITS_NOT_RESET) from error

    async def cgroup(self) -> Path | None:
        """Return the cgroup of the unit; None while it does not run."""
        group = await self._get("ControlGroup")
        return self._cgroups / str(group).lstrip("/") if group else None

    async def _settled(self, right: Callable[[IoMax], bool]) -> str | None:
        """Wait until the kernel has the limits, and return None; after a timeout return the limits that it has.

        If the unit does not run, systemd sets the limits at its start."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _AGREES_WITHIN
        # The cgroup is looked up each time, because a unit that starts again gets a new one.
        while cgroup := await self.cgroup():
            text = await asyncio.to_thread(_text, cgroup / _IO_MAX)
            if right(parse_io_max(text)):
                return None
            if loop.time() >= until:
                return text.strip() or "nothing"
            await asyncio.sleep(_POLL)
        return None

    async def _set(self, properties: Mapping[str, Sequence[Any]]) -> None:
        # The limits are runtime properties (True), so a reboot removes them.
        values = [[name, variant("a(st)", list(value))] for name, value in properties.items()]
        if values:
            await self._call("SetUnitProperties", "sba(sv)", (self._unit, True, values))

    async def _get(self, name: str) -> Any:
        # The unit may not run yet. LoadUnit also returns a unit that is not active.
        (path,) = await self._call("LoadUnit", "s", (self._unit,))
        kind = self._unit.rpartition(".")[2].capitalize()
        return await self._bus.get(NAME, path, f"{NAME}.{kind}", name)

    async def _call(self, member: str, signature: str, body: Sequence[Any]) -> list[Any]:
        return await self._bus.call(NAME, PATH, MANAGER, member, signature, body)


async def recover(bus: Bus, restore_log: RestoreLog, cgroups: Path = _CGROUPS) -> list[str]:
    """Restore the limits of every unit that a killed agent left; return the names of these units."""
    units = [key.removeprefix(_KEY) for key in await restore_log.load() if key.startswith(_KEY)]
    for unit in units:
        await UnitIo(bus, restore_log, unit, cgroups).end()
    return units


def parse_io_max(text: str) -> IoMax:
    """Parse the text of ``io.max`` (Documentation/admin-guide/cgroup-v2.rst)."""
    by_device: dict[str, dict[str, int]] = {}
    for line in text.splitlines():
        number, *pairs = line.split()
        limits = (pair.partition("=") for pair in pairs)
        by_device[number] = {key: int(value) for key, _, value in limits if value.isdigit()}
    return by_device


def _text(file: Path) -> str:
    """Return "" if the file is missing: the cgroup has no controller yet, or was removed."""
    with translated("read", str(file)):
        try:
            return file.read_text()
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENODEV):
                return ""
            raise


def written_bytes(cgroup: Path, disk: BlockNode) -> int | None:
    """Return the bytes written to the disk, from ``io.stat``.

    None if there is no such file: systemd enables the io controller of a cgroup with its first limit.
    """
    try:
        lines = [line.split() for line in (cgroup / "io.stat").read_text().splitlines()]
    except OSError:
        return None
    words = [
        word for line in lines if line and line[0] == str(disk.number) for word in line[1:] if word.startswith(_WROTE)
    ]
    return sum(int(word.removeprefix(_WROTE)) for word in words)


def dirty_bytes(cgroup: Path) -> int:
    """Return the bytes that are not on the disk yet, from ``memory.stat``; 0 if unknown.

    Data that waits behind a cap counts as under writeback.
    """
    try:
        lines = (line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        return sum(int(count) for name, count in lines if name in _DIRTY)
    except (OSError, ValueError):
        return 0


def processes(cgroup: Path) -> list[int]:
    """Return the processes of the cgroup and of those below it."""
    pids: list[int] = []
    for file in cgroup.rglob("cgroup.procs"):
        with suppress(OSError, ValueError):
            pids += map(int, file.read_text().split())
    return pids
