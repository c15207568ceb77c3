"""Changes of block devices as udev reports them: a path of a multipath lost, a disk added to a raid.

Subscribed on entry. udev tells after its rules ran, so what is looked up afterwards is complete. Without udevd (a
container) the stream is silent. Events may be lost when there are very many: who looks again at each event, and at
each use, misses nothing that lasts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from nodeagent.errors import Retryable
from nodeagent.fence.blockdev.udev import Udev, number_of
from nodeagent.fence.policy.disks import DeviceNumber

__all__ = ["Hotplug", "hotplug"]

_AT_ONCE = 64  # events read in one turn of the loop; a storm must not hold it up


@dataclass(frozen=True, slots=True)
class Hotplug:
    action: str
    """udev's word: add, remove, change, move, online, offline, bind, unbind."""
    path: str
    number: DeviceNumber


@asynccontextmanager
async def hotplug(capacity: int = 256) -> AsyncIterator[asyncio.Queue[Hotplug]]:
    """The queue keeps the latest ``capacity`` events. ``Terminal`` (``NoUdev``), ``Retryable`` (``NoHotplug``) if there
    is no netlink socket to be had."""
    monitor = await asyncio.to_thread(_monitor)
    events: asyncio.Queue[Hotplug] = asyncio.Queue(capacity)
    loop = asyncio.get_running_loop()
    loop.add_reader(monitor.fileno(), _read, monitor, events)
    try:
        yield events
    finally:
        loop.remove_reader(monitor.fileno())


def _monitor() -> Any:
    udev = Udev()
    try:
        monitor = udev.monitor()
        monitor.filter_by("block")
        monitor.start()
    except OSError as error:
        raise Retryable(f"cannot listen for block devices: {error}", reason="NoHotplug") from error
    return monitor


def _read(monitor: Any, events: asyncio.Queue[Hotplug]) -> None:
    for _ in range(_AT_ONCE):
        try:
            device = monitor.poll(timeout=0)
        except OSError:  # ENOBUFS: some were lost, the next ones come
            continue
        if device is None:
            return
        if events.full():
            events.get_nowait()
        events.put_nowait(Hotplug(device.action or "", device.device_node or "", number_of(device.device_number)))
