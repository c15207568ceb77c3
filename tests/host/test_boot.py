# SPDX-License-Identifier: Apache-2.0
"""Which boot of the userspace this is, with PID 1 of several ages and in several moods."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from dbus_next import Message, Variant

from nodeagent.host import boot
from nodeagent.host.dbus.client import Bus
from tests.support.fake_peer import DBusFault, FakePeer
from tests.support.fixtures import PrivateBus

pytestmark = [
    pytest.mark.usefixtures("no_leaked_fds"),
    pytest.mark.finding(
        "OS: soft reboots",
        "The identity of a boot has the count of soft reboots, from every systemd, also where PID 1 is busy.",
    ),
]


class Manager(FakePeer):
    """PID 1 with these properties; any other one is unknown."""

    def __init__(self) -> None:
        super().__init__("org.freedesktop.systemd1")
        self.properties: dict[str, Variant] = {}
        self.busy = 0  # how many calls get no answer
        self.on("Get", self._get)

    def _get(self, message: Message) -> Any:
        assert message.body[0] == "org.freedesktop.systemd1.Manager"
        if self.busy:
            self.busy -= 1
            return None
        if message.body[1] not in self.properties:
            raise DBusFault("org.freedesktop.DBus.Error.UnknownProperty", f"Unknown property {message.body[1]}")
        return "v", (self.properties[message.body[1]],)

    def counts(self, count: int) -> None:
        """systemd 256 and later."""
        self.properties = {"SoftRebootsCount": Variant("u", count), "UserspaceTimestampMonotonic": Variant("t", 5)}

    def started(self, userspace: int) -> None:
        """systemd before 256, whose userspace started at this time."""
        self.properties = {"UserspaceTimestampMonotonic": Variant("t", userspace)}


@pytest.fixture
async def manager(private_bus: PrivateBus) -> AsyncIterator[Manager]:
    async with Manager() as manager:
        await manager.start(private_bus.address)
        yield manager


async def identify(bus: Bus, root: Path) -> str:
    """Return the part of the identity after the boot id of the kernel."""
    found = await boot.identify(bus, root=root, timeout=0.2, pause=0.01)
    assert found.startswith(boot.kernel_boot_id())
    return found.removeprefix(boot.kernel_boot_id())


async def test_the_count_of_systemd(bus: Bus, manager: Manager, tmp_path: Path) -> None:
    for count, text in ((0, ""), (1, "+1"), (3, "+3")):
        manager.counts(count)
        assert await identify(bus, tmp_path) == text


async def test_a_systemd_that_does_not_count(bus: Bus, manager: Manager, tmp_path: Path) -> None:
    """The agent is started several times in each userspace."""
    for userspace, text in ((100, ""), (100, ""), (200, "+1"), (200, "+1"), (300, "+2")):
        manager.started(userspace)
        assert await identify(bus, tmp_path) == text


async def test_what_another_boot_noted_does_not_count(bus: Bus, manager: Manager, tmp_path: Path) -> None:
    path = tmp_path / "run/nodeagent/boot.json"
    path.parent.mkdir(parents=True)
    for noted in ({"boot_id": "other", "count": 4, "userspace": 1}, {"boot_id": 1}, [], "{"):
        path.write_text(noted if isinstance(noted, str) else json.dumps(noted))
        manager.started(200)
        assert await identify(bus, tmp_path) == ""


async def test_a_run_directory_without_room(bus: Bus, manager: Manager, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("in the way")
    manager.counts(1)
    assert await identify(bus, tmp_path) == "+1"


async def test_a_manager_that_is_busy_is_asked_again(bus: Bus, manager: Manager, tmp_path: Path) -> None:
    manager.counts(2)
    manager.busy = 2
    assert await identify(bus, tmp_path) == "+2"


async def test_a_manager_that_never_answers_does_not_keep_the_agent_from_starting(
    bus: Bus, manager: Manager, tmp_path: Path
) -> None:
    async with asyncio.timeout(5):
        manager.busy = 100
        assert await identify(bus, tmp_path) == ""
        manager.busy = 0
        manager.counts(2)
        assert await identify(bus, tmp_path) == "+2"
        manager.busy = 100
        assert await identify(bus, tmp_path) == "+2", "the last that was noted in this boot"


def start(manager: Manager, *, kernel: int, firmware: int, userspace: int) -> None:
    manager.properties |= {
        "KernelTimestamp": Variant("t", kernel),
        "FirmwareTimestampMonotonic": Variant("t", firmware),
        "UserspaceTimestampMonotonic": Variant("t", userspace),
    }


async def test_the_time_before_the_userspace(bus: Bus, manager: Manager, tmp_path: Path) -> None:
    """It is known until the first soft reboot, after which systemd has other times; the record keeps it."""
    assert await asyncio.to_thread(boot.kernel_start_seconds, tmp_path) is None
    manager.counts(0)
    start(manager, kernel=1_700_000_000_000_000, firmware=120_000_000, userspace=23_500_000)
    await identify(bus, tmp_path)
    assert await asyncio.to_thread(boot.kernel_start_seconds, tmp_path) == 143.5
    manager.counts(1)
    start(manager, kernel=1_700_000_000_000_000, firmware=120_000_000, userspace=900_000_000)
    assert await identify(bus, tmp_path) == "+1"
    assert await asyncio.to_thread(boot.kernel_start_seconds, tmp_path) == 143.5


@pytest.mark.parametrize("count", [0, 1])
async def test_a_time_that_systemd_does_not_know(bus: Bus, manager: Manager, tmp_path: Path, count: int) -> None:
    """A container has no kernel of its own; after a soft reboot the userspace is another one."""
    manager.counts(count)
    start(manager, kernel=count, firmware=0, userspace=5)
    await identify(bus, tmp_path)
    assert await asyncio.to_thread(boot.kernel_start_seconds, tmp_path) is None
