# SPDX-License-Identifier: Apache-2.0
"""The bus against a real dbus-daemon and against servers that misbehave."""

from __future__ import annotations

import array
import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from dbus_next import Message as RawMessage
from dbus_next import MessageType, Variant

from nodeagent.errors import AgentError, InvalidInput, Problem, Refused, Retryable, Terminal, Unreachable
from nodeagent.host.dbus import connection as connection_module
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.codec import a_sv, decode, encode
from nodeagent.host.dbus.connection import Connection, socket_paths, system_bus_address
from nodeagent.host.dbus.errors import LOST, BusFault, from_bus, to_bus
from nodeagent.host.dbus.header import Message, MessageKind, frame_size
from nodeagent.host.dbus.signals import Match
from nodeagent.reasons import Reason
from tests.support.fake_peer import DBusFault, FakePeer
from tests.support.fixtures import PrivateBus

pytestmark = pytest.mark.usefixtures("no_leaked_fds")

NAME = "org.nodeagent.test.Peer"
PATH = "/org/nodeagent/test"
FACE = "org.nodeagent.test.Peer1"


@pytest.fixture
async def peer(private_bus: PrivateBus) -> AsyncIterator[FakePeer]:
    async with await FakePeer(NAME).start(private_bus.address) as peer:
        yield peer


async def ask(bus: Bus, member: str, signature: str = "", body: object = (), **options: float) -> list[object]:
    return await bus.call(NAME, PATH, FACE, member, signature, body, **options)  # type: ignore[arg-type]


# -- calls ------------------------------------------------------------------------------------------------------------


async def test_values_come_back_plain(bus: Bus, peer: FakePeer) -> None:
    answer = [{"a": Variant("a{sv}", {"b": Variant("(si)", ["x", -1])})}, [b"\0\xff"], ["p", 7], True]
    peer.on("Get", lambda _m: ("a{sv}aay(st)b", answer))
    assert await ask(bus, "Get") == [{"a": {"b": ["x", -1]}}, [b"\0\xff"], ["p", 7], True]


async def test_arguments_arrive_as_they_were_sent(bus: Bus, peer: FakePeer) -> None:
    peer.on("Put", lambda _m: ("", ()))
    assert await ask(bus, "Put", "sa{sv}t", ("é" * 5000, a_sv({"name": ("s", ":1.7")}), 1 << 60)) == []
    assert peer.calls == [("Put", ["é" * 5000, {"name": Variant("s", ":1.7")}, 1 << 60])]


async def test_large_messages_both_ways(bus: Bus, peer: FakePeer) -> None:
    peer.on("Echo", lambda m: ("ay", m.body))
    data = os.urandom(5 << 20)
    assert await ask(bus, "Echo", "ay", (data,)) == [data]


async def test_concurrent_calls_get_their_own_answers(bus: Bus, peer: FakePeer) -> None:
    async def late(message: object) -> object:
        (number,) = message.body  # type: ignore[attr-defined]
        await asyncio.sleep((50 - number) / 1000)
        return "u", (number,)

    peer.on("Late", late)
    answers = await asyncio.gather(*(ask(bus, "Late", "u", (n,)) for n in range(50)))
    assert answers == [[n] for n in range(50)]


@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [
        ("org.freedesktop.DBus.Error.ServiceUnknown", Unreachable, "ServiceUnknown"),
        ("org.freedesktop.DBus.Error.NameHasNoOwner", Unreachable, "ServiceUnknown"),
        ("org.freedesktop.DBus.Error.Spawn.ChildExited", Unreachable, "ServiceUnknown"),
        ("org.freedesktop.DBus.Error.NoReply", Retryable, "NoReply"),
        ("org.freedesktop.DBus.Error.TimedOut", Retryable, "BusTimeout"),
        ("org.freedesktop.DBus.Error.Disconnected", Retryable, LOST),
        ("org.freedesktop.DBus.Error.LimitsExceeded", Retryable, "LimitsExceeded"),
        ("org.freedesktop.DBus.Error.AccessDenied", Refused, "AccessDenied"),
        ("org.freedesktop.DBus.Error.InteractiveAuthorizationRequired", Refused, "AuthorizationRequired"),
        ("org.freedesktop.DBus.Error.UnknownMethod", Terminal, "UnknownMethod"),
        ("org.freedesktop.DBus.Error.UnknownObject", Terminal, "UnknownObject"),
        ("org.freedesktop.DBus.Error.UnknownProperty", Terminal, "UnknownProperty"),
        ("org.freedesktop.DBus.Error.InvalidArgs", Terminal, "InvalidArgs"),
        ("org.freedesktop.DBus.Error.NotSupported", Terminal, "NotSupported"),
        ("org.freedesktop.systemd1.NoSuchUnit", Terminal, "BusCallFailed"),
        ("org.example.NoReply", Terminal, "BusCallFailed"),
    ],
)
async def test_every_error_has_a_kind(bus: Bus, peer: FakePeer, name: str, kind: type[AgentError], reason: str) -> None:
    def fail(_message: object) -> None:
        raise DBusFault(name, "the reason why")

    peer.on("Fail", fail)
    with pytest.raises(kind, match="the reason why") as caught:
        await ask(bus, "Fail")
    assert isinstance(caught.value, BusFault)
    assert (caught.value.reason, caught.value.bus_error) == (reason, name)
    assert f"{FACE}.Fail" in caught.value.message


async def test_no_owner_of_the_name(bus: Bus) -> None:
    with pytest.raises(Unreachable) as caught:
        await ask(bus, "Get")
    assert caught.value.reason == "ServiceUnknown"


async def test_no_answer_in_time_and_the_late_one_is_dropped(bus: Bus, peer: FakePeer) -> None:
    async def late(_message: object) -> object:
        await asyncio.sleep(0.2)
        return "s", ("late",)

    peer.on("Late", late)
    peer.on("Get", lambda _m: ("s", ("now",)))
    with pytest.raises(Retryable, match=r"within 0\.05 s") as caught:
        await ask(bus, "Late", timeout=0.05)
    assert caught.value.reason == "BusTimeout"
    await asyncio.sleep(0.25)
    assert await ask(bus, "Get") == ["now"]


async def test_a_service_that_dies_with_our_call(bus: Bus, private_bus: PrivateBus) -> None:
    peer = await FakePeer(NAME).start(private_bus.address)
    peer.on("Hang", lambda _m: None)
    call = asyncio.create_task(ask(bus, "Hang"))
    while not peer.calls:
        await asyncio.sleep(0.01)
    await peer.stop()
    with pytest.raises(Retryable) as caught:
        await call
    assert caught.value.reason == "NoReply"


async def test_calls_to_us_are_refused_while_we_serve_nothing(bus: Bus, peer: FakePeer) -> None:
    await bus.call_bus("GetId")
    reply = await peer.call(bus.unique_name, "/", "org.freedesktop.DBus.Peer", "Ping")
    assert reply.error_name == "org.freedesktop.DBus.Error.UnknownObject"


async def test_unrequested_descriptors_are_closed(bus: Bus, peer: FakePeer) -> None:
    reader, writer = os.pipe()
    peer.on("Get", lambda _m: ("h", (0,), [writer]))
    await bus.call_bus("GetId")  # connected
    before = len(os.listdir("/proc/self/fd"))
    assert await ask(bus, "Get") == [0]
    assert len(os.listdir("/proc/self/fd")) == before
    os.close(reader)
    os.close(writer)


async def test_a_descriptor_that_we_asked_for(bus: Bus, peer: FakePeer) -> None:
    reader, writer = os.pipe()
    peer.on("Get", lambda _m: ("h", (0,), [writer]))
    ours = await bus.call_for_fd(NAME, PATH, FACE, "Get")
    os.close(writer)
    os.write(ours, b"hello")
    assert os.read(reader, 5) == b"hello"
    assert not os.get_inheritable(ours)
    os.close(ours)
    os.close(reader)
    peer.on("Get", lambda _m: ("s", ("none",)))
    with pytest.raises(Terminal, match="no file descriptor"):
        await bus.call_for_fd(NAME, PATH, FACE, "Get")


# -- signals ----------------------------------------------------------------------------------------------------------


async def test_subscribe_then_call(bus: Bus, peer: FakePeer) -> None:
    async def fast(_message: object) -> object:
        await peer.emit(PATH, FACE, "Done", "us", (1, "other"))
        await peer.emit(PATH, FACE, "Done", "us", (2, "ours"))
        return "u", (2,)

    peer.on("Start", fast)
    async with bus.signals(Match(FACE, "Done", sender=NAME, path=PATH)) as done:
        (number,) = await done.call(NAME, PATH, FACE, "Start")
        assert list(await done.first(lambda body: body[0] == number)) == [2, "ours"]


async def test_signals_of_strangers_and_other_places_are_not_ours(
    bus: Bus, peer: FakePeer, private_bus: PrivateBus
) -> None:
    async with (
        await FakePeer().start(private_bus.address) as stranger,
        bus.signals(Match(FACE, "Done", sender=NAME, path=PATH)) as done,
    ):
        forged = RawMessage(bus.unique_name, PATH, FACE, "Done", MessageType.SIGNAL, signature="s", body=["forged"])
        await stranger.bus.send(forged)  # straight to us: no match rule keeps that away
        await stranger.emit(PATH, FACE, "Done", "s", ("forged too",))
        await peer.emit(PATH + "/x", FACE, "Done", "s", ("elsewhere",))
        await peer.emit(PATH, FACE, "Other", "s", ("other",))
        await stranger.call(NAME, PATH, FACE, "Sync")  # the stranger's signals are through
        await peer.emit(PATH, FACE, "Done", "s", ("true",))
        assert (await done.next()).body == ("true",)


async def test_a_service_that_comes_back_under_its_name_is_heard(bus: Bus, private_bus: PrivateBus) -> None:
    first = await FakePeer(NAME).start(private_bus.address)
    async with bus.signals(Match(FACE, "Done", sender=NAME)) as done:
        await first.stop()
        async with await FakePeer(NAME).start(private_bus.address) as second:
            await second.emit(PATH, FACE, "Done", "s", ("again",))
            assert (await done.next()).body == ("again",)


async def test_a_service_that_is_not_there_yet_is_heard(bus: Bus, private_bus: PrivateBus) -> None:
    async with (
        bus.signals(Match(FACE, sender=NAME, arg0="yes")) as done,
        await FakePeer(NAME).start(private_bus.address) as peer,
    ):
        await peer.emit(PATH, FACE, "Done", "s", ("no",))
        await peer.emit(PATH, FACE, "Done", "s", ("yes",))
        assert (await done.next()).body == ("yes",)


async def test_after_the_block_no_more_signals(bus: Bus, peer: FakePeer) -> None:
    async with bus.signals(Match(FACE, "Done", sender=NAME)) as done, bus.signals(done.match) as twin:
        await peer.emit(PATH, FACE, "Done")
        await done.next()
        await twin.next()
    await bus.call_bus("GetId")
    assert not bus._signals
    # Nor does the bus daemon have a rule of them.
    with pytest.raises(BusFault) as caught:
        await bus.call_bus("RemoveMatch", "s", (done.match.rule(),))
    assert caught.value.bus_error == "org.freedesktop.DBus.Error.MatchRuleNotFound"


# -- a connection that drops ------------------------------------------------------------------------------------------


async def test_bus_restart(bus: Bus, private_bus: PrivateBus) -> None:
    peer = await FakePeer(NAME).start(private_bus.address)
    peer.on("Hang", lambda _m: None)
    call = asyncio.create_task(ask(bus, "Hang"))
    async with bus.signals(Match(FACE, "Done", sender=NAME)) as done:
        waiting = asyncio.create_task(done.next())
        while not peer.calls:
            await asyncio.sleep(0.01)
        private_bus.stop()
        for task in (call, waiting):
            with pytest.raises(Retryable) as caught:
                await task
            assert caught.value.reason == LOST
        with pytest.raises(Retryable) as caught:
            await done.call(NAME, PATH, FACE, "Get")
        assert caught.value.reason == LOST
        await peer.stop()
        with pytest.raises(Unreachable) as caught2:
            await asyncio.wait_for(ask(bus, "Get"), 5)
        assert caught2.value.reason == "BusUnreachable"
        later = asyncio.create_task(bus.call_bus("GetId"))
        await asyncio.sleep(0.3)
        private_bus.start()
        await later
        # The old subscription stays dead; it does not look alive on a connection that never asked.
        with pytest.raises(Retryable):
            await done.next()
    async with (
        await FakePeer(NAME).start(private_bus.address) as peer,
        bus.signals(Match(FACE, "Done", sender=NAME)) as done,
    ):
        await peer.emit(PATH, FACE, "Done")
        await done.next()


async def test_many_callers_share_one_connection(bus: Bus, private_bus: PrivateBus) -> None:
    names = await asyncio.gather(*(bus.call_bus("GetId") for _ in range(20)))
    assert len({tuple(name) for name in names}) == 1
    listed = (await bus.call_bus("ListNames"))[0]
    assert len([name for name in listed if name.startswith(":")]) == 1


async def test_closed_for_good(private_bus: PrivateBus) -> None:
    async with Bus(private_bus.address) as bus:
        await bus.call_bus("GetId")
    with pytest.raises(Retryable, match="closed by this side"):
        await bus.call_bus("GetId")


@asynccontextmanager
async def server(
    path: Path, script: Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]
) -> AsyncIterator[str]:
    """A server that does to each client what ``script`` says."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await script(reader, writer)  # type: ignore[misc]
        finally:
            writer.close()

    started = await asyncio.start_unix_server(serve, path)
    try:
        yield f"unix:path={path}"
    finally:
        started.close()
        await asyncio.sleep(0.01)


async def closes_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)


async def closes_after_ok(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readline()
    writer.write(b"OK 1234deadbeef\r\n")
    await reader.readline()


async def closes_in_a_line(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readline()
    writer.write(b"OK 12")


async def never_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def never_says_hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    for answer in (b"OK 1234deadbeef\r\n", b"AGREE_UNIX_FD\r\n"):
        await reader.readline()
        writer.write(answer)
    await reader.read()


async def talks_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    for answer in (b"OK 1234deadbeef\r\n", b"AGREE_UNIX_FD\r\n"):
        await reader.readline()
        writer.write(answer)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await reader.read()


async def endless_line(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readline()
    writer.write(b"O" * (1 << 20))
    await reader.read()


@pytest.mark.parametrize(
    "script",
    [
        closes_at_once,
        closes_after_ok,
        closes_in_a_line,
        never_answers,
        never_says_hello,
        talks_nonsense,
        endless_line,
    ],
)
async def test_servers_that_misbehave(tmp_path: Path, script: Callable[..., object]) -> None:
    async with server(tmp_path / "s", script) as address, Bus(address, connect_for=0.3) as bus:
        with pytest.raises(Unreachable) as caught:
            async with asyncio.timeout(30):
                await bus.call_bus("GetId")
        assert caught.value.reason == "BusUnreachable"


async def test_a_slow_bus_is_waited_for_and_an_absent_one_is_not(private_bus: PrivateBus, tmp_path: Path) -> None:
    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.3)
        path = private_bus.address.partition("path=")[2].partition(",")[0]
        to_bus, from_bus = await asyncio.open_unix_connection(path)
        await asyncio.gather(_copy(reader, from_bus), _copy(to_bus, writer))

    async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(4096):
            target.write(data)
        target.close()

    async with server(tmp_path / "s", slowly) as address, Bus(address, connect_for=0.0, patience=10) as bus:
        assert await bus.call_bus("GetId")
    async with asyncio.timeout(8), Bus(f"unix:path={tmp_path / 'none'}", connect_for=0.0, patience=10) as bus:
        with pytest.raises(Unreachable):
            await bus.call_bus("GetId")


async def test_a_server_that_does_not_let_us_in(tmp_path: Path) -> None:
    async def rejects(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"REJECTED EXTERNAL\r\n")
        await reader.read()

    async with server(tmp_path / "s", rejects) as address, Bus(address) as bus:
        with pytest.raises(Refused, match="REJECTED") as caught:
            await bus.call_bus("GetId")
        assert caught.value.reason == "BusRefused"


async def test_a_full_backlog_does_not_block_the_loop(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen(0)
    fillers = []
    while True:
        filler = socket.socket(socket.AF_UNIX)
        filler.setblocking(False)
        fillers.append(filler)
        try:
            filler.connect(str(tmp_path / "s"))
        except BlockingIOError:
            break
    try:
        async with Bus(f"unix:path={tmp_path / 's'}", connect_for=0.2) as bus:
            with pytest.raises(Unreachable):
                async with asyncio.timeout(30):
                    await bus.call_bus("GetId")
    finally:
        for each in (listener, *fillers):
            each.close()


async def test_no_server_at_all(tmp_path: Path) -> None:
    async with Bus(f"unix:path={tmp_path / 'none'}", connect_for=0.1) as bus:
        with pytest.raises(Unreachable, match="No such file"):
            await bus.call_bus("GetId")
    async with Bus("tcp:host=localhost", connect_for=0.1) as bus:
        with pytest.raises(Terminal) as caught:
            await bus.call_bus("GetId")
        assert caught.value.reason == "BusAddressInvalid"


async def test_a_cancelled_call_leaves_nothing(bus: Bus, peer: FakePeer) -> None:
    peer.on("Hang", lambda _m: None)
    call = asyncio.create_task(ask(bus, "Hang"))
    await asyncio.sleep(0.1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert bus._connection is not None and not bus._connection._waiting


# -- a private socket of a service, without a bus ---------------------------------------------------------------------


async def test_peer_to_peer(tmp_path: Path) -> None:
    async def serves_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in (b"OK 1234deadbeef\r\n", b"AGREE_UNIX_FD\r\n"):
            await reader.readline()
            writer.write(answer)
        await reader.readline()
        head = await reader.readexactly(16)
        call = decode(head + await reader.readexactly(frame_size(head) - 16))
        assert (call.member, call.destination) == ("Start", "")
        writer.write(encode(Message(MessageKind.SIGNAL, "/", FACE, "Progress", signature="u", body=(50,)), 1))
        writer.write(encode(Message(MessageKind.RETURN, reply_serial=call.serial, signature="b", body=(True,)), 2))
        await writer.drain()

    async with server(tmp_path / "s", serves_one) as address, Bus(address, peer=True) as bus:
        async with bus.signals(Match(FACE)) as progress:
            assert await progress.call("", "/", FACE, "Start") == [True]
            assert (await progress.next()).body == (50,)
            with pytest.raises(Retryable):
                await progress.next()
        with pytest.raises(Retryable, match="not opened again"):
            await bus.call("", "/", FACE, "Start")


# -- the wire ---------------------------------------------------------------------------------------------------------


async def test_odd_messages_cost_only_themselves() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    connection = Connection(ours)
    connection._loop.add_reader(ours, connection._readable)
    got: list[Message] = []
    connection.admit = lambda _header: 10
    connection.on_message = got.append
    good = encode(Message(MessageKind.SIGNAL, "/", FACE, "Good"), 1)
    odd = bytearray(good)
    odd[1] = 9  # a message type from the future
    theirs.sendall(bytes(odd) + good[:7])
    await asyncio.sleep(0.02)
    theirs.sendall(good[7:])
    reader, writer = os.pipe()
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [reader, writer]))]
    theirs.sendmsg([bytes(odd)], rights)
    await asyncio.sleep(0.02)
    assert [message.member for message in got] == ["Good"]
    assert connection.lost is not None
    for fd in (reader, writer):
        os.close(fd)
    theirs.close()


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert socket_paths("unix:path=/run/a%20b,guid=12;tcp:host=x;unix:abstract=y") == ["/run/a b", "\0y"]
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/x")
    assert system_bus_address() == "unix:path=/x"
    monkeypatch.delenv("DBUS_SYSTEM_BUS_ADDRESS")
    assert system_bus_address() == "unix:path=/run/dbus/system_bus_socket"


def test_match_rules() -> None:
    assert Match("a.b", "C", "d.e", "/f", "g").rule() == (
        "type='signal',interface='a.b',member='C',sender='d.e',path='/f',arg0='g'"
    )
    with pytest.raises(ValueError, match="quote"):
        Match("a.b", arg0="it's").rule()


def test_our_own_errors_cross_the_bus_whole() -> None:
    sent = InvalidInput(
        "bad config", reason=Reason.SETTINGS_INVALID, hint="look", problems=[Problem("spec.x", "is wrong")]
    )
    name, body = to_bus(sent)
    assert name == "org.nodeagent.Error.SettingsInvalid"
    got = from_bus(name, body, "x")
    assert type(got) is InvalidInput
    assert (got.message, got.reason, got.hint, got.problems) == (sent.message, sent.reason, sent.hint, sent.problems)


@pytest.mark.parametrize("details", ["", "{", "[]", '{"problems": [1]}', 7])
def test_errors_of_another_version_keep_the_reason(details: object) -> None:
    got = from_bus("org.nodeagent.Error.New", ("message", details), "x")
    assert (type(got), got.reason, got.message) == (Terminal, "New", "message")


@pytest.mark.finding(
    "attack: reads beside others", "A connection that a message ends within a long slice is not used again."
)
async def test_a_message_that_ends_the_connection_after_a_long_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "SLICE", -1.0)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    connection = Connection(ours)
    connection.admit = lambda _header: 10
    connection.on_message = lambda _message: connection.close("the message was the last one")
    theirs.sendall(encode(Message(MessageKind.SIGNAL, "/", FACE, "Last"), 1))
    connection._loop.add_reader(ours, connection._readable)
    failures: list[object] = []
    connection._loop.set_exception_handler(lambda _loop, context: failures.append(context["message"]))
    await asyncio.sleep(0.05)
    assert connection.lost is not None
    assert not failures
    theirs.close()
