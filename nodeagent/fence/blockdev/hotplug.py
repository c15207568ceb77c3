"""Changes of block devices reported by udev: a path of a multipath was lost, a disk was added to a raid.

The subscription starts on entry. udev reports after its rules have run, so a later look-up is complete. Without udevd
(in a container) there are no events. Some may be lost if there are very many; a look-up at each event still finds every
lasting change.
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
from nodeagent.reasons import Reason

__all__ = ["Hotplug", "hotplug"]

# Events that are read in one turn of the loop, so that a storm does not block it.
_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Hotplug:
    action: str
    """The action of udev: add, remove, change, move, online, offline, bind, unbind."""
    path: str
    number: DeviceNumber


@asynccontextmanager
async def hotplug(capacity: int = 256) -> AsyncIterator[asyncio.Queue[Hotplug]]:
    """Subscribe; the queue keeps the latest ``capacity`` events. ``Terminal`` (``NoUdev``), or ``Retryable``
    (``NoHotplug``) without a netlink socket."""
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
        raise Retryable(f"cannot subscribe to block devices: {error}", reason=Reason.NO_HOTPLUG) from error
    return monitor


def _read(monitor: Any, events: asyncio.Queue[Hotplug]) -> None:
    for _ in range(_AT_ONCE):
        try:
            device = monitor.poll(timeout=0)
        except OSError:
            # ENOBUFS: some events were lost, but the next ones follow.
            continue
        if device is None:
            return
        if events.full():
            events.get_nowait()
        events.put_nowait(Hotplug(device.action or "", device.device_node or "", number_of(device.device_number)))
