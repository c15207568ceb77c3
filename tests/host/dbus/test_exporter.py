# SPDX-License-Identifier: Apache-2.0
"""``Exporter`` as its clients see it: our own, and one that speaks D-Bus in its own way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any
from xml.etree import ElementTree as Xml

import pytest
from dbus_next import Variant
from dbus_next.introspection import Node

from nodeagent.errors import AgentError, InvalidInput, Problem, Refused, Retryable, Terminal, Unreachable
from nodeagent.host.dbus import exporter
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.codec import a_sv
from nodeagent.host.dbus.exporter import MAX_PROPERTY_CALL, Exporter
from nodeagent.host.dbus.header import Message
from nodeagent.host.dbus.interface import MAX_CALL, PROPERTIES, Interface, Method, Property, Signal
from nodeagent.host.dbus.signals import Match
from nodeagent.reasons import Reason
from tests.support.fake_peer import FakePeer
from tests.support.fixtures import PrivateBus
from tests.support.needs import acts_as_root

pytestmark = pytest.mark.usefixtures("no_leaked_fds")

NAME = "org.nodeagent.Agent1"
PATH = "/org/nodeagent/Agent1"
FACE = "org.nodeagent.Agent1.Manager"


class Daemon:
    """The implementation of the interface."""

    def __init__(self) -> None:
        self.phase = "Idle"
        self.seen: list[Message] = []
        self.release = asyncio.Event()
        self.canceled = 0

    async def add(self, message: Message) -> Sequence[Any]:
        self.seen.append(message)
        return (sum(message.body), {"kind": Variant("s", "sum")})

    async def fail(self, message: Message) -> Sequence[Any]:
        match message.body[0]:
            case "input":
                raise InvalidInput(
                    "bad", reason="SettingsInvalid", hint="look", problems=[Problem("spec.a", "is wrong")]
                )
            case "lease":
                raise Refused("held by y", reason=Reason.LEASE_HELD)
            case "value":
                return ("a string, not a number",)
            case _:
                raise ZeroDivisionError("secret inside")

    async def options(self, _message: Message) -> Sequence[Any]:
        return ()

    async def hang(self, _message: Message) -> Sequence[Any]:
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.canceled += 1
            raise
        return ()

    def interfaces(self) -> list[Interface]:
        return [
            Interface(
                FACE,
                {
                    "Add": Method(self.add, "uu", "ua{sv}", ("first", "second", "sum", "details")),
                    "Fail": Method(self.fail, "s", "u"),
                    "Options": Method(self.options, "a{sv}"),
                    "Hang": Method(self.hang),
                },
                {"Phase": Property("s", lambda: self.phase), "Broken": Property("u", lambda: 1 // 0)},
                {"Ended": Signal("si", ("name", "code"))},
            ),
            Interface("org.nodeagent.Agent1.Other", {}, {"Numbers": Property("au", lambda: [1, 2])}),
        ]


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


@pytest.fixture
async def service(bus: Bus, daemon: Daemon) -> AsyncIterator[Exporter]:
    async with Exporter(bus, NAME, PATH, daemon.interfaces()) as service:
        yield service


@pytest.fixture
async def client(private_bus: PrivateBus, service: Exporter) -> AsyncIterator[Bus]:
    async with Bus(private_bus.address, connect_for=2, patience=20) as client:
        yield client


@pytest.fixture
async def stranger(private_bus: PrivateBus, service: Exporter) -> AsyncIterator[FakePeer]:
    async with await FakePeer().start(private_bus.address) as stranger:
        yield stranger


async def ask(client: Bus, member: str, signature: str = "", body: Sequence[Any] = (), **options: Any) -> list[Any]:
    return await client.call(NAME, PATH, FACE, member, signature, body, **options)


# -- methods ----------------------------------------------------------------------------------------------------------


async def test_a_call_and_who_made_it(client: Bus, daemon: Daemon) -> None:
    assert await ask(client, "Add", "uu", (1, 2), interactive=True) == [3, {"kind": "sum"}]
    assert (daemon.seen[0].sender, daemon.seen[0].interactive) == (client.unique_name, True)


async def test_errors_arrive_as_they_were_raised(client: Bus) -> None:
    with pytest.raises(InvalidInput, match="bad") as caught:
        await ask(client, "Fail", "s", ("input",))
    assert (caught.value.reason, caught.value.hint) == ("SettingsInvalid", "look")
    assert caught.value.problems == (Problem("spec.a", "is wrong"),)
    with pytest.raises(Refused, match="held by y"):
        await ask(client, "Fail", "s", ("lease",))


async def test_errors_as_others_see_them(stranger: FakePeer) -> None:
    reply = await stranger.call(NAME, PATH, FACE, "Fail", "s", ["lease"])
    assert reply.error_name == "org.nodeagent.Error.LeaseHeld"
    assert reply.body[0] == "held by y"


@pytest.mark.parametrize("what", ["bug", "value"])
async def test_bugs_are_logged_to_the_journal_only(
    stranger: FakePeer, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    reply = await stranger.call(NAME, PATH, FACE, "Fail", "s", [what])
    assert reply.error_name == "org.nodeagent.Error.AgentFailed"
    assert "secret" not in str(reply.body)
    assert "Traceback" not in str(reply.body)
    assert "Fail failed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "face", "member", "signature", "body", "error"),
    [
        (PATH, FACE, "None", "", [], "UnknownMethod"),
        (PATH, FACE, "Add", "us", [1, "2"], "InvalidArgs"),
        (PATH, FACE, "Add", "", [], "InvalidArgs"),
        (PATH, "org.nodeagent.None", "Add", "", [], "UnknownInterface"),
        ("/", FACE, "Add", "uu", [1, 2], "UnknownObject"),
        (PATH, PROPERTIES, "Get", "ss", [FACE, "None"], "UnknownProperty"),
        (PATH, PROPERTIES, "Get", "ss", ["org.x", "Phase"], "UnknownInterface"),
        (PATH, PROPERTIES, "Get", "s", [FACE], "UnknownMethod"),
        (PATH, PROPERTIES, "GetAll", "s", ["org.x"], "UnknownInterface"),
        (PATH, PROPERTIES, "Set", "ssv", [FACE, "Phase", Variant("s", "x")], "PropertyReadOnly"),
    ],
)
async def test_calls_that_make_no_sense(
    stranger: FakePeer, path: str, face: str, member: str, signature: str, body: list[Any], error: str
) -> None:
    reply = await stranger.call(NAME, path, face, member, signature, body)
    assert reply.error_name == f"org.freedesktop.DBus.Error.{error}"


async def test_a_slow_call_delays_no_other(client: Bus, daemon: Daemon) -> None:
    slow = asyncio.create_task(ask(client, "Hang"))
    assert (await ask(client, "Add", "uu", (1, 2)))[0] == 3
    daemon.release.set()
    assert await slow == []


@acts_as_root
async def test_one_connection_does_not_take_all_the_calls(
    client: Bus, private_bus: PrivateBus, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "MAX_CALLS", 10)
    hanging = [asyncio.create_task(ask(client, "Hang")) for _ in range(9)]
    async with Bus(private_bus.address) as other:
        with pytest.raises(Retryable, match="over one connection"):
            await hanging[8]
        more = [asyncio.create_task(ask(other, "Hang")) for _ in range(2)]
        await asyncio.sleep(0.05)
        with pytest.raises(Retryable, match="too many concurrent calls"):
            await ask(other, "Add", "uu", (1, 2))
        # All users can still read the status.
        assert await other.get(NAME, PATH, FACE, "Phase") == "Idle"
        daemon.release.set()
        await asyncio.gather(*hanging[:8], *more)


async def test_a_call_that_is_too_large(client: Bus) -> None:
    with pytest.raises(Refused, match=f"the limit is {MAX_CALL}") as caught:
        await ask(client, "Fail", "s", ("x" * MAX_CALL,))
    assert caught.value.reason == "CallTooLarge"
    with pytest.raises(Retryable, match=f"more than {MAX_PROPERTY_CALL}"):
        await client.get(NAME, PATH, FACE, "x" * MAX_PROPERTY_CALL)


async def test_arguments_that_cannot_be_decoded(client: Bus) -> None:
    with pytest.raises(Terminal) as caught:
        await ask(client, "Options", "a{sv}", (a_sv({"x": ("au", [0] * 1000)}),))
    assert caught.value.reason == "InvalidArgs"
    assert await ask(client, "Options", "a{sv}", (a_sv({"x": ("au", [0] * 100)}),)) == []


async def test_calls_under_way_end_with_the_service(bus: Bus, private_bus: PrivateBus, daemon: Daemon) -> None:
    async with Bus(private_bus.address) as client:
        async with Exporter(bus, NAME, PATH, daemon.interfaces()):
            hanging = asyncio.create_task(ask(client, "Hang", timeout=5))
            await asyncio.sleep(0.1)
        assert daemon.canceled == 1
        bus.close()
        with pytest.raises(Retryable) as caught:
            await hanging
        assert caught.value.reason == "NoReply"


# -- properties and introspection -------------------------------------------------------------------------------------


async def test_properties(client: Bus, service: Exporter, daemon: Daemon) -> None:
    async with client.signals(Match(PROPERTIES, "PropertiesChanged", sender=NAME, path=PATH, arg0=FACE)) as changes:
        assert await client.get(NAME, PATH, FACE, "Phase") == "Idle"
        daemon.phase = "Acting"
        service.changed(FACE, "Phase")
        assert list((await changes.next()).body) == [FACE, {"Phase": "Acting"}, []]
    assert await client.call(NAME, PATH, PROPERTIES, "GetAll", "s", ("org.nodeagent.Agent1.Other",)) == [
        {"Numbers": [1, 2]}
    ]


async def test_a_broken_property(client: Bus, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AgentError, match="failed inside the daemon"):
        await client.get(NAME, PATH, FACE, "Broken")
    assert "Get failed" in capsys.readouterr().err


async def test_introspection(client: Bus, stranger: FakePeer) -> None:
    (text,) = await client.call(NAME, PATH, "org.freedesktop.DBus.Introspectable", "Introspect")
    node = Node.parse(text)
    face = next(face for face in node.interfaces if face.name == FACE)
    add = next(method for method in face.methods if method.name == "Add")
    assert [(a.name, a.signature) for a in add.in_args] == [("first", "u"), ("second", "u")]
    assert [(a.name, a.signature) for a in add.out_args] == [("sum", "u"), ("details", "a{sv}")]
    assert [(p.name, p.signature) for p in face.properties] == [("Phase", "s"), ("Broken", "u")]
    assert [(s.name, [(a.name, a.signature) for a in s.args]) for s in face.signals] == [
        ("Ended", [("name", "s"), ("code", "i")])
    ]
    assert PROPERTIES in [face.name for face in node.interfaces]
    for path, child in (("/", "org"), ("/org", "nodeagent"), ("/org/nodeagent", "Agent1"), ("/x", None)):
        (text,) = await client.call(NAME, path, "org.freedesktop.DBus.Introspectable", "Introspect")
        found = Xml.fromstring(text).find("node")
        assert (found.get("name") if found is not None else None) == child


async def test_a_declared_signal(client: Bus, service: Exporter) -> None:
    async with client.signals(Match(FACE, "Ended", sender=NAME, path=PATH)) as signals:
        service.emit(FACE, "Ended", "worker-2", 4)
        async with asyncio.timeout(5):
            assert list((await signals.next()).body) == ["worker-2", 4]


async def test_ping(stranger: FakePeer) -> None:
    assert (await stranger.call(NAME, "/anything", "org.freedesktop.DBus.Peer", "Ping")).body == []


# -- the name ---------------------------------------------------------------------------------------------------------


async def test_a_second_daemon(private_bus: PrivateBus, service: Exporter, daemon: Daemon) -> None:
    async with Bus(private_bus.address) as bus:
        with pytest.raises(Terminal) as caught:
            async with Exporter(bus, NAME, PATH, daemon.interfaces()):
                pass
        assert caught.value.reason == "AlreadyRunning"


async def test_a_name_that_we_may_not_have(bus: Bus, daemon: Daemon) -> None:
    with pytest.raises(Refused) as caught:
        async with Exporter(bus, "org.nodeagent.test.Forbidden", PATH, daemon.interfaces()):
            pass
    assert caught.value.reason == "AccessDenied"


async def test_no_bus(daemon: Daemon) -> None:
    async with Bus("unix:path=/nonexistent/bus", connect_for=0.1) as bus:
        with pytest.raises(Unreachable):
            async with Exporter(bus, NAME, PATH, daemon.interfaces()):
                pass


async def test_the_service_is_back_after_a_restart_of_the_bus(
    client: Bus, private_bus: PrivateBus, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await client.get(NAME, PATH, FACE, "Phase") == "Idle"
    private_bus.stop()
    await asyncio.sleep(0.05)
    private_bus.start()
    async with asyncio.timeout(10):
        while True:
            try:
                assert await client.get(NAME, PATH, FACE, "Phase") == "Idle"
                break
            except (Retryable, Unreachable):  # the connection is found dead, or the name is not there yet
                await asyncio.sleep(0.05)
    assert "lost the bus name" in capsys.readouterr().err
