# SPDX-License-Identifier: Apache-2.0
"""``Logind`` against logind of several ages."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from dbus_next import Message, Variant

from nodeagent.errors import NoSoftReboot, Refused, Retryable, ServiceUnavailable, SoftObstacle
from nodeagent.host.dbus.client import Bus
from nodeagent.host.logind import Logind
from nodeagent.reasons import Reason
from nodeagent.update.ports.system import Confirm, Power, ShutdownKind
from tests.host.fake_logind import FakeLogind
from tests.support.fake_peer import DBusFault, FakePeer
from tests.support.fixtures import PrivateBus

pytestmark = pytest.mark.usefixtures("no_leaked_fds")


@pytest.fixture
async def manager(private_bus: PrivateBus) -> AsyncIterator[FakeLogind]:
    manager = FakeLogind()
    await manager.start(private_bus.address)
    yield manager
    await manager.stop()


@pytest.fixture
def logind(bus: Bus, manager: FakeLogind) -> Logind:
    return Logind(bus)


async def nothing() -> None: ...


async def shut_down(
    logind: Logind,
    kind: ShutdownKind,
    why: str,
    warn: float,
    force: bool,
    confirm: Confirm = nothing,
    warned: Callable[[], None] = lambda: None,
    direct: bool = False,
) -> None:
    await logind.shut_down(kind, why, warn=warn, force=force, confirm=confirm, warned=warned, direct=direct)


async def reboot(logind: Logind, why: str, *, soft: bool = False, **given: Any) -> None:
    await shut_down(logind, ShutdownKind.SOFT_REBOOT if soft else ShutdownKind.REBOOT, why, **given)


async def power_off(logind: Logind, why: str, **given: Any) -> None:
    await shut_down(logind, ShutdownKind.POWER_OFF, why, **given)


async def test_boot_id(logind: Logind) -> None:
    port: Power = logind
    with open("/proc/sys/kernel/random/boot_id") as file:
        assert port.boot_id() == file.read().strip()


async def test_blockers_are_others_that_block_shutdown(logind: Logind, manager: FakeLogind) -> None:
    manager.inhibitors = [
        ["shutdown:sleep", "backup", "running", "block", 0, 1],
        ["shutdown", "weak", "really", "block-weak", 0, 4194303],
        ["shutdown", "delay", "", "delay", 0, 1],
        ["sleep", "player", "", "block", 0, 1],
        ["handle-power-key:idle", "desktop", "", "block", 0, 1],
        ["shutdown", "nodeagent", "", "block", 0, os.getpid()],
    ]
    found = await logind.blockers()
    assert [(b.who, b.why) for b in found] == [("backup", "running"), ("weak", "really")]
    assert found[0].process.endswith("[1]")
    assert found[1].process == "pid 4194303"


async def test_inhibit_holds_and_lets_go(logind: Logind, manager: FakeLogind) -> None:
    async with logind.inhibit("applying x"):
        assert manager.calls == [("Inhibit", ["shutdown", "nodeagent", "applying x", "block"])]
        assert await manager.still_held()
        assert not await logind.blockers()
    assert not await manager.still_held()


async def test_inhibit_lets_go_of_a_failure(logind: Logind, manager: FakeLogind) -> None:
    with pytest.raises(ZeroDivisionError):
        async with logind.inhibit("x"):
            raise ZeroDivisionError
    assert not await manager.still_held()


async def test_inhibit_without_logind(bus: Bus, capsys: pytest.CaptureFixture[str]) -> None:
    async with Logind(bus).inhibit("x"):
        pass
    assert "cannot be blocked" in capsys.readouterr().err
    assert await Logind(bus).blockers() == ()


async def test_inhibit_that_is_denied(logind: Logind, manager: FakeLogind, capsys: pytest.CaptureFixture[str]) -> None:
    def deny(_message: Any) -> None:
        raise DBusFault("org.freedesktop.DBus.Error.AccessDenied", "no")

    manager.on("Inhibit", deny)
    async with logind.inhibit("x"):
        pass
    assert "AccessDenied" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("version", "force", "calls"),
    [
        (257, False, [("RebootWithFlags", [1])]),
        (257, True, [("RebootWithFlags", [16])]),
        (252, False, [("RebootWithFlags", [1])]),
        (252, True, [("RebootWithFlags", [16]), ("Reboot", [False])]),
        (239, False, [("RebootWithFlags", [1]), ("Reboot", [False])]),
        (239, True, [("RebootWithFlags", [16]), ("Reboot", [False])]),
    ],
)
async def test_reboot(bus: Bus, private_bus: PrivateBus, version: int, force: bool, calls: list[Any]) -> None:
    manager = FakeLogind(version)
    await manager.start(private_bus.address)
    if force:
        manager.inhibitors = [["shutdown", "backup", "running", "block", 0, 1]]
    await reboot(Logind(bus), "x", warn=10, force=force)
    assert manager.going_down == "reboot"
    assert [call for call in manager.calls if call[0].startswith("Reboot")] == calls
    assert "ScheduleShutdown" not in manager.members()
    await manager.stop()


@pytest.mark.parametrize(
    ("version", "force", "calls"),
    [
        (257, False, [("RebootWithFlags", [4 | 1])]),
        (257, True, [("RebootWithFlags", [4 | 16])]),
        (254, False, [("RebootWithFlags", [4 | 1])]),
        (254, True, [("RebootWithFlags", [4 | 16]), ("RebootWithFlags", [4])]),
    ],
)
async def test_soft_reboot(bus: Bus, private_bus: PrivateBus, version: int, force: bool, calls: list[Any]) -> None:
    manager = FakeLogind(version)
    await manager.start(private_bus.address)
    if force:
        manager.inhibitors = [["shutdown", "backup", "running", "block", 0, 1]]
    await reboot(Logind(bus), "x", warn=0, force=force, soft=True)
    assert manager.going_down == "soft-reboot"
    assert [call for call in manager.calls if call[0].startswith("Reboot")] == calls
    await manager.stop()


@pytest.mark.finding(
    "OS: soft reboots",
    "A fallback is soft only where services are all that matters, and where it starts the same system; an old logind "
    "never reboots fully instead.",
)
@pytest.mark.parametrize("version", [252, 246, 239])
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("users", [False, True])
async def test_an_old_logind_never_reboots_fully_instead(
    bus: Bus, private_bus: PrivateBus, version: int, force: bool, users: bool
) -> None:
    manager = FakeLogind(version)
    manager.sessions = {"1": "user"} if users else {}
    await manager.start(private_bus.address)
    with pytest.raises(NoSoftReboot, match="logind knows no soft reboot") as caught:
        await reboot(Logind(bus), "x", warn=0.05, force=force, soft=True)
    assert caught.value.obstacle is SoftObstacle.UNSUPPORTED
    assert not manager.going_down
    assert "Reboot" not in manager.members()
    await manager.stop()


async def test_users_are_warned_of_a_soft_reboot(logind: Logind, manager: FakeLogind) -> None:
    manager.sessions = {"1": "user"}
    await reboot(logind, "x", warn=0.05, force=False, soft=True)
    assert next(body[0] for member, body in manager.calls if member == "ScheduleShutdown") == "soft-reboot"
    assert manager.going_down == "soft-reboot"


@pytest.mark.parametrize("version", [254, 257, 258])
async def test_a_soft_reboot_that_is_blocked(bus: Bus, private_bus: PrivateBus, version: int) -> None:
    """Also by an inhibitor that appears while users are warned: logind refuses it then."""
    manager = FakeLogind(version)
    await manager.start(private_bus.address)

    async def block() -> None:
        manager.inhibitors = [["shutdown", "backup", "running", "block", 0, 1]]

    with pytest.raises(Refused, match="backup") as caught:
        await reboot(Logind(bus), "x", warn=0, force=False, soft=True, confirm=block)
    assert caught.value.reason == "RebootBlocked"
    assert not manager.going_down
    await manager.stop()


@pytest.mark.parametrize("direct", [False, True], ids=["no logind", "logind does not answer"])
async def test_soft_reboot_through_systemd(bus: Bus, private_bus: PrivateBus, direct: bool) -> None:
    """The target stops all services in order, which the method of systemd does not."""
    async with await FakePeer("org.freedesktop.systemd1").start(private_bus.address) as systemd:
        systemd.on("StartUnit", lambda m: ("o", ("/org/freedesktop/systemd1/job/1",)))
        await reboot(Logind(bus), "x", warn=30, force=False, soft=True, direct=direct)
        assert systemd.calls == [("StartUnit", ["soft-reboot.target", "replace-irreversibly"])]


async def test_a_target_that_vanished(bus: Bus, private_bus: PrivateBus) -> None:
    """It was there when it was checked. The reboot is refused, and not made in another way."""

    def fail(_message: Message) -> Any:
        raise DBusFault("org.freedesktop.systemd1.UnitMasked", "Unit soft-reboot.target is masked.")

    async with await FakePeer("org.freedesktop.systemd1").start(private_bus.address) as systemd:
        systemd.on("StartUnit", fail)
        with pytest.raises(NoSoftReboot, match="masked") as caught:
            await reboot(Logind(bus), "x", warn=0, force=False, soft=True, direct=True)
        assert caught.value.obstacle is SoftObstacle.UNSUPPORTED
        assert systemd.members() == ["StartUnit"]


async def test_a_full_reboot_does_not_become_a_soft_one(logind: Logind, manager: FakeLogind) -> None:
    """Not even where another program prepared a soft one: that takes another flag, as systemctl sets it."""
    await reboot(logind, "x", warn=0, force=False)
    assert [body for member, body in manager.calls if member == "RebootWithFlags"] == [[1]]


async def test_reboot_that_is_blocked(logind: Logind, manager: FakeLogind) -> None:
    manager.inhibitors = [["shutdown", "backup", "running", "block", 0, 1]]
    with pytest.raises(Refused, match="backup") as caught:
        await reboot(logind, "x", warn=0, force=False)
    assert caught.value.reason == "RebootBlocked"
    assert not manager.going_down


@pytest.mark.parametrize(
    ("version", "force", "calls"),
    [
        (257, False, [("PowerOffWithFlags", [1])]),
        (257, True, [("PowerOffWithFlags", [16])]),
        (239, False, [("PowerOffWithFlags", [1]), ("PowerOff", [False])]),
    ],
)
async def test_power_off(bus: Bus, private_bus: PrivateBus, version: int, force: bool, calls: list[Any]) -> None:
    manager = FakeLogind(version)
    await manager.start(private_bus.address)
    manager.sessions = {"3": "user"}
    await power_off(Logind(bus), "x", warn=0.05, force=force)
    assert manager.going_down == "poweroff"
    assert [call for call in manager.calls if call[0].startswith(("PowerOff", "Reboot"))] == calls
    assert dict(manager.calls)["ScheduleShutdown"][0] == "poweroff", "users are warned of the right shutdown"
    await manager.stop()


async def test_power_off_that_is_blocked(logind: Logind, manager: FakeLogind) -> None:
    manager.inhibitors = [["shutdown", "backup", "running", "block", 0, 1]]
    with pytest.raises(Refused, match="the power-off is blocked by backup") as caught:
        await power_off(logind, "x", warn=0, force=False)
    assert caught.value.reason == "PowerOffBlocked"
    assert not manager.going_down


async def test_power_off_without_logind(bus: Bus, private_bus: PrivateBus) -> None:
    async with await FakePeer("org.freedesktop.systemd1").start(private_bus.address) as systemd:
        systemd.on("StartUnit", lambda m: ("o", ("/org/freedesktop/systemd1/job/1",)))
        await power_off(Logind(bus), "x", warn=30, force=False)
        assert systemd.calls == [("StartUnit", ["poweroff.target", "replace-irreversibly"])]


@pytest.mark.parametrize("kind", ["user", "user-early"])
async def test_users_are_warned_and_get_their_time(logind: Logind, manager: FakeLogind, kind: str) -> None:
    manager.sessions = {"c1": "greeter", "3": kind}
    began, said = time.clock_gettime(time.CLOCK_REALTIME), []
    why = "nodeagent: applying\tx\n" + "y" * 5000
    await reboot(logind, why, warn=0.2, force=False, warned=lambda: said.append(len(manager.calls)))
    assert said == [len(manager.calls) - 1], "between the warning and the reboot"
    assert time.clock_gettime(time.CLOCK_REALTIME) - began >= 0.2
    order = [m for m in manager.members() if m not in ("ListInhibitors", "ListSessions", "Get")]
    assert order == ["SetWallMessage", "ScheduleShutdown", "RebootWithFlags"]
    calls = dict(manager.calls)
    message, enable = calls["SetWallMessage"]
    assert message.startswith("nodeagent: applyingxyyy") and len(message) == 1000 and enable is True
    action, at = calls["ScheduleShutdown"]
    assert action == "reboot"
    assert 0 < at / 1e6 - began < 120


async def test_lingering_users_are_not_waited_for(logind: Logind, manager: FakeLogind) -> None:
    manager.sessions = {"1": "manager", "c1": "greeter"}
    await reboot(logind, "x", warn=30, force=False)
    assert "ScheduleShutdown" not in manager.members()


@pytest.mark.parametrize("version", [252, 257, 258])
async def test_a_blocker_that_comes_while_we_wait(logind: Logind, manager: FakeLogind, version: int) -> None:
    manager.version = version
    manager.sessions = {"3": "user"}
    task = asyncio.create_task(reboot(logind, "x", warn=0.3, force=False))
    while "ScheduleShutdown" not in manager.members():
        await asyncio.sleep(0.01)
    manager.inhibitors = [["shutdown", "backup", "running", "block", 0, 1]]
    with pytest.raises(Refused, match="backup"):
        await task
    assert "CancelScheduledShutdown" in manager.members()


async def test_stopped_while_users_have_their_time(logind: Logind, manager: FakeLogind) -> None:
    manager.sessions = {"3": "user"}
    task = asyncio.create_task(reboot(logind, "x", warn=60, force=False))
    while "ScheduleShutdown" not in manager.members():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert manager.members()[-1] == "CancelScheduledShutdown"
    assert not manager.going_down


@pytest.mark.finding(
    "leases: lost while users are warned",
    "The lease is checked again right before logind is called, after the warning; slot and etcd as well.",
)
async def test_the_last_word_comes_after_the_time_of_the_users(logind: Logind, manager: FakeLogind) -> None:
    manager.sessions = {"3": "user"}
    at: list[tuple[str, ...]] = []

    async def confirm() -> None:
        at.append(tuple(manager.members()))

    await reboot(logind, "x", warn=0.05, force=False, confirm=confirm)
    (members,) = at
    assert "ScheduleShutdown" in members and "RebootWithFlags" not in members
    assert manager.going_down


@pytest.mark.finding(
    "leases: lost while users are warned",
    "A lease that is lost while users are warned of a reboot stops it, and the warning is cancelled.",
)
@pytest.mark.parametrize("users", [{}, {"3": "user"}])
async def test_a_last_word_that_says_no_takes_the_warning_back(
    logind: Logind, manager: FakeLogind, users: dict[str, str]
) -> None:
    manager.sessions = users

    async def confirm() -> None:
        raise Refused("another holder took it", reason=Reason.LEASE_LOST)

    with pytest.raises(Refused, match="took it"):
        await power_off(logind, "x", warn=0.05, force=False, confirm=confirm)
    assert not manager.going_down
    assert ("CancelScheduledShutdown" in manager.members()) == bool(users)


async def test_force_reboots_past_a_blocker_though_it_cannot_warn(
    logind: Logind, manager: FakeLogind, capsys: pytest.CaptureFixture[str]
) -> None:
    manager.sessions = {"3": "user"}
    manager.inhibitors = [["shutdown", "backup", "running", "block", 0, 1]]
    await reboot(logind, "x", warn=30, force=True)
    assert manager.going_down
    assert "could not be warned" in capsys.readouterr().err


async def test_a_host_that_cannot_warn(logind: Logind, manager: FakeLogind, capsys: pytest.CaptureFixture[str]) -> None:
    manager.sessions = {"3": "user"}
    del manager.handlers["ScheduleShutdown"]
    await reboot(logind, "x", warn=30, force=False)
    assert manager.going_down
    assert "could not be warned" in capsys.readouterr().err


@pytest.mark.parametrize("preparing", [True, False])
async def test_another_shutdown_was_first(logind: Logind, manager: FakeLogind, preparing: bool) -> None:
    manager.going_down = "poweroff" if preparing else "suspend"
    manager.preparing = preparing
    if preparing:
        await reboot(logind, "x", warn=0, force=False)
        return
    with pytest.raises(Retryable) as caught:
        await reboot(logind, "x", warn=0, force=False)
    assert caught.value.reason == "OperationInProgress"


async def test_a_shutdown_that_is_under_way(logind: Logind, manager: FakeLogind) -> None:
    assert not await logind.going_down()
    manager.preparing = True
    assert await logind.going_down()


async def test_no_shutdown_is_under_way_without_logind(bus: Bus) -> None:
    assert not await Logind(bus).going_down()


async def test_reboot_without_logind(bus: Bus, private_bus: PrivateBus) -> None:
    async with await FakePeer("org.freedesktop.systemd1").start(private_bus.address) as systemd:
        systemd.on("StartUnit", lambda m: ("o", ("/org/freedesktop/systemd1/job/1",)))
        await reboot(Logind(bus), "x", warn=30, force=False)
        assert systemd.calls == [("StartUnit", ["reboot.target", "replace-irreversibly"])]


@pytest.mark.parametrize(
    "name", ["System.Error.EEXIST", "org.freedesktop.DBus.Error.FileExists", "org.freedesktop.systemd1.UnitMasked"]
)
async def test_reboot_with_a_logind_that_systemd_cannot_start(
    logind: Logind, manager: FakeLogind, private_bus: PrivateBus, name: str
) -> None:
    def fail(_message: Message) -> Any:
        raise DBusFault(name, "Unit dbus-org.freedesktop.login1.service is masked.")

    for member in ("ListInhibitors", "ListSessions", "RebootWithFlags"):
        manager.on(member, fail)
    assert await logind.blockers() == ()
    async with await FakePeer("org.freedesktop.systemd1").start(private_bus.address) as systemd:
        systemd.on("StartUnit", lambda m: ("o", ("/org/freedesktop/systemd1/job/1",)))
        await reboot(logind, "x", warn=30, force=False)
        assert systemd.calls == [("StartUnit", ["reboot.target", "replace-irreversibly"])]


async def test_polkit_that_would_ask_root_for_a_password(
    logind: Logind, manager: FakeLogind, private_bus: PrivateBus
) -> None:
    def ask(_message: Message) -> Any:
        raise DBusFault("org.freedesktop.DBus.Error.InteractiveAuthorizationRequired", "Interactive authentication")

    manager.on("RebootWithFlags", ask)
    async with await FakePeer("org.freedesktop.systemd1").start(private_bus.address) as systemd:
        systemd.on("StartUnit", lambda m: ("o", ("/org/freedesktop/systemd1/job/1",)))
        with pytest.raises(Refused, match="Interactive authentication"):
            await reboot(logind, "x", warn=0, force=False)
        assert systemd.calls == []
        await reboot(logind, "x", warn=0, force=True)
        assert systemd.calls == [("StartUnit", ["reboot.target", "replace-irreversibly"])]


@pytest.mark.finding(
    "services: away for a while", "A bus that cannot be reached does not mean that nothing inhibits a reboot."
)
async def test_a_bus_that_is_away_does_not_mean_that_nothing_inhibits(tmp_path: Path) -> None:
    async with Bus(f"unix:path={tmp_path}/none", connect_for=0.1) as bus:
        with pytest.raises(ServiceUnavailable) as caught:
            await Logind(bus).blockers()
    assert (caught.value.reason, caught.value.service) == ("BusUnreachable", "the system bus")


async def test_a_logind_that_is_killed_while_it_is_asked(logind: Logind, manager: FakeLogind) -> None:
    def die(_message: Any) -> None:
        raise DBusFault("org.freedesktop.DBus.Error.NoReply", "Message recipient disconnected from message bus")

    manager.on("ListInhibitors", die)
    with pytest.raises(ServiceUnavailable) as caught:
        await reboot(logind, "x", warn=0, force=False)
    assert caught.value.service == "systemd-logind"


@pytest.mark.parametrize("name", ["org.freedesktop.DBus.Error.NoReply", "org.freedesktop.DBus.Error.Timeout"])
async def test_force_does_not_wait_for_a_polkit_that_hangs(
    logind: Logind, manager: FakeLogind, private_bus: PrivateBus, name: str
) -> None:
    def no_answer(_message: Message) -> Any:
        raise DBusFault(name, "polkit does not answer")

    manager.on("RebootWithFlags", no_answer)
    async with await FakePeer("org.freedesktop.systemd1").start(private_bus.address) as systemd:
        systemd.on("StartUnit", lambda m: ("o", ("/org/freedesktop/systemd1/job/1",)))
        with pytest.raises(ServiceUnavailable):
            await reboot(logind, "x", warn=0, force=False)
        assert systemd.calls == []
        await reboot(logind, "x", warn=0, force=True)
        assert systemd.calls == [("StartUnit", ["reboot.target", "replace-irreversibly"])]


async def test_direct_leaves_logind_out(logind: Logind, manager: FakeLogind, private_bus: PrivateBus) -> None:
    confirmed: list[bool] = []

    async def confirm() -> None:
        confirmed.append(True)

    async with await FakePeer("org.freedesktop.systemd1").start(private_bus.address) as systemd:
        systemd.on("StartUnit", lambda m: ("o", ("/org/freedesktop/systemd1/job/1",)))
        await reboot(logind, "x", warn=30, force=True, confirm=confirm, direct=True)
        assert systemd.calls == [("StartUnit", ["reboot.target", "replace-irreversibly"])]
    assert manager.calls == []
    assert confirmed == [True]


@pytest.mark.finding("services: away for a while", "A logind that lost its connection to the bus is restarted.")
@pytest.mark.parametrize(("active", "restarted"), [("active", True), ("activating", False)])
async def test_a_logind_that_lost_the_bus_is_restarted(
    logind: Logind, manager: FakeLogind, private_bus: PrivateBus, active: str, restarted: bool
) -> None:
    def no_name(_message: Message) -> Any:
        raise DBusFault("org.freedesktop.DBus.Error.TimedOut", "Failed to activate service: timed out")

    manager.on("ListInhibitors", no_name)
    async with await FakePeer("org.freedesktop.systemd1").start(private_bus.address) as systemd:
        systemd.on("GetUnit", lambda m: ("o", ("/org/freedesktop/systemd1/unit/logind",)))
        systemd.on("Get", lambda m: ("v", (Variant("s", active),)))
        systemd.on("RestartUnit", lambda m: ("o", ("/org/freedesktop/systemd1/job/1",)))
        with pytest.raises(ServiceUnavailable):
            await logind.blockers()
        asked = ("RestartUnit", ["systemd-logind.service", "replace"]) in systemd.calls
        assert asked is restarted
