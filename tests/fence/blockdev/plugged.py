"""Run in a network namespace of its own: says what udevd would say of a disk that comes and goes, and prints what
``hotplug`` made of it.

The format is that of systemd's ``src/libsystemd/sd-device/device-monitor.c``, which libudev reads.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct

from nodeagent.fence.blockdev.hotplug import hotplug

NETLINK_KOBJECT_UEVENT = 15  # linux/netlink.h; not in the socket module
UDEV_GROUP = 2
MAGIC = 0xFEEDCAFE
HEADER = struct.Struct("=8s4sIII4s4s8s")


async def main() -> None:
    async with hotplug() as events:
        say("change", "usb", "usb_device")  # not for us
        say("add", "block", "disk")
        say("remove", "block", "disk")
        async with asyncio.timeout(20):
            heard = [await events.get() for _ in range(2)]
    print(json.dumps([(event.action, event.path, event.number) for event in heard]))


def say(action: str, subsystem: str, kind: str) -> None:
    properties = [
        f"ACTION={action}",
        "DEVPATH=/devices/virtual/block/sdz",
        f"SUBSYSTEM={subsystem}",
        f"DEVTYPE={kind}",
        "DEVNAME=/dev/sdz",
        "MAJOR=65",
        "MINOR=144",
        "SEQNUM=4711",
        "USEC_INITIALIZED=1",
    ]
    body = b"".join(text.encode() + b"\0" for text in properties)
    hashes = [struct.pack(">I", murmur(text.encode())) for text in (subsystem, kind)]
    header = HEADER.pack(b"libudev\0", struct.pack(">I", MAGIC), HEADER.size, HEADER.size, len(body), *hashes, bytes(8))
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_KOBJECT_UEVENT) as sender:
        sender.sendto(header + body, (0, UDEV_GROUP))


def murmur(data: bytes) -> int:
    """MurmurHash2 with seed 0: the kernel drops by it what is of another subsystem."""
    factor, mask = 0x5BD1E995, 0xFFFFFFFF
    value = len(data)
    while len(data) >= 4:
        word = int.from_bytes(data[:4], "little") * factor & mask
        value = (value * factor & mask) ^ ((word ^ word >> 24) * factor & mask)
        data = data[4:]
    if data:
        value = (value ^ int.from_bytes(data, "little")) * factor & mask
    value = (value ^ value >> 13) * factor & mask
    return value ^ value >> 15


if __name__ == "__main__":
    asyncio.run(main())
