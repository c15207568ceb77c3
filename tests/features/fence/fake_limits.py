# SPDX-License-Identifier: Apache-2.0
"""A manager with systemd's habits about limits of a unit, and a cgroup that it writes to a moment later."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from dbus_next import Message, Variant

from nodeagent.features.fence.decide.disks import BlockNode, DeviceNumber
from tests.support.fake_peer import DBusFault, FakePeer

UNIT = "rpm-ostreed.service"
CGROUP = "/system.slice/rpm-ostreed.service"
DISK = BlockNode(DeviceNumber(254, 0), "/dev/vda")
OTHER = BlockNode(DeviceNumber(8, 16), "/dev/sdb")
NUMBERS = {"/dev/vda": "254:0", "/dev/sdb": "8:16"}
KEYS = {"IOWriteBandwidthMax": "wbps", "IOWriteIOPSMax": "wiops"}
INFINITY = 2**64 - 1


class Manager(FakePeer):
    """The rules of ``src/core/dbus-cgroup.c``: lists are merged by path, an empty one removes all."""

    def __init__(self, cgroups: Path) -> None:
        super().__init__("org.freedesktop.systemd1")
        self.cgroup = cgroups / CGROUP.lstrip("/")
        self.running = True
        self.control_group = CGROUP
        self.stubborn = False
        # Units that systemd has never heard of. It takes properties of a slice nevertheless.
        self.unknown: set[str] = set()
        self.kind = "Service"
        self.lists: dict[str, dict[str, int]] = {name: {} for name in KEYS}
        self.sent: list[tuple[str, bool, list[Any]]] = []
        self.signatures: set[tuple[str, str]] = set()
        self.on("LoadUnit", lambda m: ("o", ("/org/freedesktop/systemd1/unit/it",)))
        self.on("Get", self._get)
        self.on("SetUnitProperties", self._set)

    @property
    def io_max(self) -> str:
        file = self.cgroup / "io.max"
        return file.read_text() if file.exists() else ""

    def _get(self, message: Message) -> Any:
        interface, name = message.body
        assert interface == f"org.freedesktop.systemd1.{self.kind}"
        if name == "ControlGroup":
            return "v", (Variant("s", self.control_group if self.running else ""),)
        return "v", (Variant("a(st)", [[path, value] for path, value in self.lists[name].items()]),)

    async def _set(self, message: Message) -> Any:
        unit, runtime, properties = message.body
        assert message.signature == "sba(sv)"
        if unit in self.unknown and not unit.endswith(".slice"):
            raise DBusFault("org.freedesktop.systemd1.NoSuchUnit", f"Unit {unit} not found.")
        self.sent.append((unit, runtime, [(name, value.value) for name, value in properties]))
        for name, value in properties:
            self.signatures.add((name, value.signature))
            if not value.value:
                self.lists[name].clear()
            for path, limit in value.value:
                self.lists[name].pop(path, None)
                if limit != INFINITY:
                    self.lists[name][path] = limit
        if self.running and not self.stubborn:
            asyncio.get_running_loop().call_later(0.03, self._apply)
        return "", ()

    def _apply(self) -> None:
        paths = sorted({path for entries in self.lists.values() for path in entries})
        lines = []
        for path in paths:
            keys = {"rbps": "max", "wbps": "max", "riops": "max", "wiops": "max"}
            keys |= {KEYS[name]: str(entries[path]) for name, entries in self.lists.items() if path in entries}
            lines.append(" ".join([NUMBERS[path], *(f"{key}={value}" for key, value in keys.items())]))
        (self.cgroup / "io.max").write_text("".join(line + "\n" for line in lines))
