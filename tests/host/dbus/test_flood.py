# SPDX-License-Identifier: Apache-2.0
"""Attacks of any user on the daemon over the bus: messages of up to 32 MB, of any kind, as many as time allows."""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import shutil
import socket
import struct
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.errors import Terminal
from nodeagent.host.dbus import connection, exporter
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.codec import a_sv, decode, encode
from nodeagent.host.dbus.connection import Connection
from nodeagent.host.dbus.exporter import MAX_OF_CONNECTION, MAX_OF_USER, CallLimits, Exporter, TooManyCalls
from nodeagent.host.dbus.header import Message, MessageKind, read_header
from nodeagent.host.dbus.interface import Interface, Method, Property
from nodeagent.host.dbus.signals import Match
from tests.support.fixtures import PrivateBus
from tests.support.needs import missing
from tests.support.stalls import MAX_STALL, Stalls, slowness
from tests.support.wire import (
    FACE,
    NOBODY,
    PATH,
    array_of_variants,
    connect_as,
    hello,
    hostile,
    malformed,
    message,
    nested_variants,
)

pytestmark = pytest.mark.usefixtures("no_leaked_fds")

NAME = "org.nodeagent.Agent1"


class Daemon:
    def __init__(self) -> None:
        self.calls: list[Message] = []
        self.release = asyncio.Event()

    async def add(self, call: Message) -> Sequence[Any]:
        self.calls.append(call)
        return (sum(call.body),)

    async def take(self, call: Message) -> Sequence[Any]:
        self.calls.append(call)
        return ()

    async def hang(self, _call: Message) -> Sequence[Any]:
        await self.release.wait()
        return ()

    def interface(self) -> Interface:
        large = 32 << 20
        methods = {
            "Add": Method(self.add, "uu", "u"),
            "Apply": Method(self.take, "sa{sv}", max_size=2 << 20, max_size_for_root=large),
            "Hang": Method(self.hang),
        }
        return Interface(FACE, methods, {"Phase": Property("s", lambda: "Idle")})


@pytest.fixture
def open_bus() -> Iterator[PrivateBus]:
    """A bus that other users can reach, too."""
    if message := missing("dbus-daemon"):
        pytest.skip(message)
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    bus = PrivateBus(directory)
    bus.start()
    bus.socket.chmod(0o777)
    yield bus
    bus.stop()
    shutil.rmtree(directory)


@pytest.fixture
async def daemon(open_bus: PrivateBus) -> AsyncIterator[Daemon]:
    daemon = Daemon()
    async with (
        Bus(open_bus.address, connect_for=2, patience=20) as bus,
        Exporter(bus, NAME, PATH, [daemon.interface()]),
    ):
        yield daemon


@pytest.fixture
async def admin(open_bus: PrivateBus, daemon: Daemon) -> AsyncIterator[Bus]:
    async with Bus(open_bus.address, connect_for=2, patience=20) as admin:
        await admin.call_bus("GetId")
        yield admin


class Stranger:
    """A client that writes what it likes, and reads and forgets what comes back."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._socket.setblocking(False)
        self.errors: list[str] = []
        self._loop = asyncio.get_running_loop()
        self._reader = self._loop.create_task(self._read())

    async def _read(self) -> None:
        buffer = bytearray()
        with contextlib.suppress(OSError):
            while data := await self._loop.sock_recv(self._socket, 1 << 16):
                buffer += data
                while len(buffer) >= 16 and len(buffer) >= (size := connection.frame_size(buffer)):
                    reply = read_header(buffer)
                    del buffer[:size]
                    if reply.kind is MessageKind.ERROR:
                        self.errors.append(reply.error_name)

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._socket, data)

    async def stop(self) -> None:
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        self._socket.close()


@contextlib.asynccontextmanager
async def stranger(bus: PrivateBus) -> AsyncIterator[Stranger]:
    """Connect as another user, where the tests may become one."""
    uid = NOBODY if os.geteuid() == 0 else os.geteuid()
    made = Stranger(connect_as(uid, bus.socket))
    try:
        await made.send(hello())
        yield made
    finally:
        await made.stop()


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it is about what others than root may do")


@pytest.mark.parametrize("kind", [1, 4], ids=["call", "signal"])
async def test_a_large_message_of_a_stranger_costs_nothing(
    open_bus: PrivateBus, daemon: Daemon, admin: Bus, kind: int
) -> None:
    body = array_of_variants(4 << 20)
    data = message(kind, NAME, "Apply", "av", body)
    async with stranger(open_bus) as peer:
        started = time.process_time()
        stalls = Stalls()
        await peer.send(data)
        assert await admin.call(NAME, PATH, FACE, "Add", "uu", (1, 2)) == [3]
        worst, spent = stalls.stop(), time.process_time() - started
    print(f"worst turn {worst * 1000:.1f} ms, {spent:.2f} s in all")
    assert worst < MAX_STALL
    assert [call.member for call in daemon.calls] == ["Add"]


@pytest.mark.finding(
    "daemon: hostile messages",
    "Thousands of hostile messages over the bus, and malformed ones on the socket, never hold the loop for 100 ms.",
)
async def test_five_thousand_messages_over_the_bus(open_bus: PrivateBus, daemon: Daemon, admin: Bus) -> None:
    stalls = Stalls()
    async with stranger(open_bus) as peer:
        for number, data in enumerate(hostile(1, NAME, 5000)):
            await peer.send(data)
            if number % 500 == 0:
                assert await admin.get(NAME, PATH, FACE, "Phase") == "Idle"
        assert await admin.call(NAME, PATH, FACE, "Add", "uu", (1, 2)) == [3]
    worst = stalls.stop()
    print(f"worst turn {worst * 1000:.1f} ms")
    assert worst < MAX_STALL


@pytest.mark.finding(
    "daemon: hostile messages",
    "Thousands of hostile messages over the bus, and malformed ones on the socket, never hold the loop for 100 ms.",
)
async def test_five_thousand_malformed_messages_on_the_socket() -> None:
    """No bus in between that would keep the worst away."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
    connection = Connection(ours)
    got: list[Message] = []
    connection.admit = lambda header: 200 if len(header.signature) < 8 else 0
    connection.on_message = got.append
    loop = asyncio.get_running_loop()
    loop.add_reader(ours, connection._readable)
    stalls = Stalls()
    for data in malformed(2, 5000):
        await loop.sock_sendall(theirs, data)
    good = encode(Message(MessageKind.SIGNAL, "/", FACE, "Good"), 1)
    await loop.sock_sendall(theirs, good)
    async with asyncio.timeout(20):
        while not got or got[-1].member != "Good":
            assert connection.lost is None
            await asyncio.sleep(0)
    worst = stalls.stop()
    print(f"worst turn {worst * 1000:.1f} ms, {len(got)} decoded")
    assert worst < MAX_STALL
    assert not connection._incoming
    connection.close()
    theirs.close()


@given(st.binary(max_size=200), st.sampled_from(b"lB"), st.integers(0, 255))
def test_any_header_is_read_or_refused(fields: bytes, order: int, kind: int) -> None:
    size = struct.pack("<I" if order == ord("l") else ">I", len(fields))
    data = bytes([order, kind, 0, 1]) + bytes(8) + size + fields + bytes(-len(fields) % 8)
    with contextlib.suppress(ValueError):
        assert read_header(data).size == len(data)


@given(st.data())
def test_a_damaged_header_is_read_or_refused(draw: st.DataObject) -> None:
    data = bytearray(message(1, NAME, "Apply", "sa{sv}", b"", sender=":1.5"))
    for at in draw.draw(st.lists(st.integers(16, len(data) - 1), max_size=5)):
        data[at] = draw.draw(st.integers(0, 255))
    shorter = draw.draw(st.integers(0, len(data) - 16)) // 8 * 8
    data = data[: len(data) - shorter]
    struct.pack_into("<I", data, 12, len(data) - 16)
    with contextlib.suppress(ValueError):
        assert read_header(data).size == len(data)


async def test_a_flood_of_small_calls_leaves_the_loop_its_turn(
    open_bus: PrivateBus, daemon: Daemon, admin: Bus
) -> None:
    flood = b"".join(message(1, NAME, "None", "", b"") for _ in range(5000))
    stalls = Stalls()
    async with stranger(open_bus) as peer:
        sending = asyncio.create_task(peer.send(flood))
        assert await admin.call(NAME, PATH, FACE, "Add", "uu", (1, 2)) == [3]
        await sending
    worst = stalls.stop()
    print(f"worst turn {worst * 1000:.1f} ms")
    assert worst < MAX_STALL


async def test_unwanted_bodies_are_not_held() -> None:
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
    connection = Connection(ours)
    loop = asyncio.get_running_loop()
    loop.add_reader(ours, connection._readable)
    data = message(4, ":1.0", "Apply", "ay", struct.pack("<I", 8 << 20) + bytes(8 << 20))
    most = 0
    sending = asyncio.create_task(loop.sock_sendall(theirs, data))
    while not sending.done():
        await asyncio.sleep(0)
        most = max(most, len(connection._incoming))
    await asyncio.sleep(0.01)
    assert connection.lost is None
    assert most <= 1 << 16
    connection.close()
    theirs.close()


@pytest.mark.finding(
    "daemon: hostile messages", "A body that is decoded has a limit of elements, and of bytes by user."
)
@pytest.mark.parametrize(
    ("signature", "body"),
    [
        ("av", array_of_variants(1 << 20)),
        ("v", nested_variants(200)),
        ("a(y)", struct.pack("<II", 1 << 16, 0) + bytes(1 << 16)),
        ("ab", struct.pack("<I", 1 << 20) + bytes(1 << 20)),
    ],
    ids=["variants", "nested", "structs", "booleans"],
)
def test_decoding_is_bounded_by_elements(signature: str, body: bytes) -> None:
    data = message(1, NAME, "Apply", signature, body)
    started = time.thread_time()
    with pytest.raises(ValueError, match="too"):
        decode(data, 200)
    assert (time.thread_time() - started) / slowness() < MAX_STALL / 2


async def test_descriptors_of_unwanted_messages_are_closed() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    connection = Connection(ours)
    connection._loop.add_reader(ours, connection._readable)
    data = bytearray(message(4, ":1.0", "Apply", "h", bytes(4)))
    reader, writer = os.pipe()
    # The last field becomes the number of descriptors instead of the signature.
    plain = message(4, ":1.0", "Apply", "h", bytes(4))
    at = plain.index(b"\x08\x01g\0")
    data = bytearray(plain[:at] + b"\x09\x01u\0" + struct.pack("<I", 1) + bytes(4))
    struct.pack_into("<I", data, 12, at + 8 - 16)
    data = data[: at + 8] + bytes(-(at + 8) % 8) + bytes(4)
    assert read_header(data).fd_count == 1
    before = len(os.listdir("/proc/self/fd"))
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [writer]))]
    theirs.sendmsg([bytes(data)], rights)
    await asyncio.sleep(0.02)
    assert connection.lost is None
    assert len(os.listdir("/proc/self/fd")) == before
    connection.close()
    for fd in (reader, writer):
        os.close(fd)
    theirs.close()


# -- what is decoded at all -------------------------------------------------------------------------------------------


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    members: list[str] = []

    def counted(data: bytes, elements: int) -> Message:
        members.append(read_header(data).member)
        return decode(data, elements)

    monkeypatch.setattr(connection, "decode", counted)
    return members


@pytest.mark.finding(
    "daemon: hostile messages",
    "A body is decoded only for a call with the exact signature of a method, an awaited reply, or a signal that a "
    "subscription matches.",
)
@pytest.mark.parametrize(
    ("member", "signature", "fields"),
    [
        ("Add", "us", {}),
        ("Add", "uu", {"path": "/"}),
        ("Add", "uu", {"interface": "a.b"}),
        ("None", "uu", {}),
        ("Get", "su", {"interface": "org.freedesktop.DBus.Properties"}),
        ("Set", "ssv", {"interface": "org.freedesktop.DBus.Properties"}),
        ("Ping", "u", {"interface": "org.freedesktop.DBus.Peer"}),
    ],
)
async def test_calls_that_are_refused_by_their_header(
    open_bus: PrivateBus, daemon: Daemon, admin: Bus, decoded: list[str], member: str, signature: str, fields: Any
) -> None:
    bodies = {
        "us": struct.pack("<II", 1, 0) + b"\0",
        "su": struct.pack("<III", 0, 0, 0),
        "ssv": struct.pack("<III", 0, 0, 0) + b"\0\1y\0\7",
    }
    body = bodies.get(signature, bytes({"u": 4, "uu": 8}.get(signature, 0)))
    async with stranger(open_bus) as peer:
        await peer.send(message(1, NAME, member, signature, body, **fields))
        async with asyncio.timeout(5):
            while not peer.errors:
                await asyncio.sleep(0.01)
    assert not daemon.calls
    assert member not in decoded


@pytest.mark.finding(
    "daemon: hostile messages",
    "A body is decoded only for a call with the exact signature of a method, an awaited reply, or a signal that a "
    "subscription matches.",
)
async def test_signals_that_a_stranger_sends_to_us_are_not_decoded(open_bus: PrivateBus, decoded: list[str]) -> None:
    async with Bus(open_bus.address) as bus, stranger(open_bus) as peer, bus.signals(Match(FACE)) as signals:
        text = struct.pack("<I", 1) + b"x\0"
        await peer.send(message(4, bus.unique_name, "Direct", "s", text))
        await peer.send(message(4, "", "Broadcast", "s", text))
        assert (await signals.next()).member == "Broadcast"
    assert "Direct" not in decoded


async def test_a_reply_of_another_than_who_was_asked() -> None:
    """The bus would not let it through; this looks again where it can."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    connection = Connection(ours)
    connection._loop.add_reader(ours, connection._readable)
    asked = asyncio.create_task(connection.call(Message(MessageKind.CALL, "/", FACE, "Get", ":1.5")))
    await asyncio.sleep(0)
    serial = read_header(theirs.recv(1000)).serial
    for sender in (":1.6", ":1.5"):
        theirs.sendall(message(2, ":1.0", "", "u", struct.pack("<I", 6), sender=sender, reply_serial=serial))
    assert (await asked).sender == ":1.5"
    connection.close()
    theirs.close()


async def test_a_reply_that_cannot_be_decoded_fails_its_call_only() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    connection = Connection(ours)
    connection._loop.add_reader(ours, connection._readable)
    asked = asyncio.create_task(connection.call(Message(MessageKind.CALL, "/", FACE, "Get", ":1.5")))
    await asyncio.sleep(0)
    serial = read_header(theirs.recv(1000)).serial
    body = struct.pack("<I", 1000) + b"x\0"
    theirs.sendall(message(2, ":1.0", "", "s", body, sender=":1.5", reply_serial=serial))
    with pytest.raises(Terminal) as caught:
        await asked
    assert caught.value.reason == "UnexpectedReply"
    assert connection.lost is None
    connection.close()
    theirs.close()


# -- limits of users --------------------------------------------------------------------------------------------------


@pytest.mark.finding("daemon: places for root", "Calls of others that wait for polkit leave slots for root.")
@needs_root
async def test_a_flood_of_calls_that_hang_does_not_lock_root_out(
    open_bus: PrivateBus, daemon: Daemon, admin: Bus
) -> None:
    """Take every slot that other users may have, as happens with a polkit that hangs."""
    async with contextlib.AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(stranger(open_bus)) for _ in range(10)]
        for peer in peers:
            for _ in range(MAX_OF_CONNECTION):
                await peer.send(message(1, NAME, "Hang", "", b""))
        refused = 10 * MAX_OF_CONNECTION - MAX_OF_USER
        async with asyncio.timeout(10):
            while sum(len(peer.errors) for peer in peers) < refused:
                await asyncio.sleep(0.01)
        assert {error for peer in peers for error in peer.errors} == {"org.freedesktop.DBus.Error.LimitsExceeded"}
        assert await admin.call(NAME, PATH, FACE, "Add", "uu", (1, 2)) == [3]
        assert daemon.calls[-1].uid == 0
        daemon.release.set()


@pytest.mark.finding(
    "daemon: hostile messages", "A body that is decoded has a limit of elements, and of bytes by user."
)
@needs_root
async def test_a_large_config_is_for_root(
    open_bus: PrivateBus, daemon: Daemon, admin: Bus, decoded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of other users counts also for a client that is not identified yet."""
    monkeypatch.setattr(exporter, "decode", connection.decode)
    text = "x" * (10 << 20)
    body = struct.pack("<I", len(text)) + text.encode() + b"\0"
    body += bytes(-len(body) % 4) + struct.pack("<I", 0)
    body += bytes(-len(body) % 8)
    stalls = Stalls()
    async with stranger(open_bus) as peer:
        await peer.send(message(1, NAME, "Apply", "sa{sv}", body))
        async with asyncio.timeout(10):
            while not peer.errors:
                await asyncio.sleep(0.01)
        assert peer.errors == ["org.nodeagent.Error.CallTooLarge"]
        assert "Apply" not in decoded
        await peer.send(message(1, NAME, "Apply", "sa{sv}", body))  # known by now: refused by its header
        async with asyncio.timeout(10):
            while len(peer.errors) < 2:
                await asyncio.sleep(0.01)
    await admin.call(NAME, PATH, FACE, "Apply", "sa{sv}", (text, {}))
    assert stalls.stop() < MAX_STALL
    assert [(call.uid, call.body[0] == text) for call in daemon.calls] == [(0, True)]
    with pytest.raises(Terminal) as caught:
        async with Bus(open_bus.address) as other:
            await other.call(NAME, PATH, FACE, "Apply", "sa{sv}", (text, a_sv({"y": ("au", [1] * 999)})))
    assert caught.value.reason == "InvalidArgs"


def test_slots() -> None:
    limits = CallLimits()
    of_unknown = [limits.take(f":1.{n // 8}", 1000, None) for n in range(64)]
    with pytest.raises(TooManyCalls, match="one connection"):
        limits.take(":1.0", 1000, None)
    for slot in of_unknown[:MAX_OF_USER]:
        limits.identify(slot, 65534)
    with pytest.raises(TooManyCalls, match="users other than root"):
        limits.identify(of_unknown[MAX_OF_USER], 65534)
    others = [limits.take(f":2.{uid}.{n // 8}", 1000, uid) for uid in (1000, 1001) for n in range(MAX_OF_USER)]
    with pytest.raises(TooManyCalls, match="users other than root"):
        limits.take(":3.0", 1000, 1002)
    of_root = [limits.take(f":4.{n // 8}", 1000, 0) for n in range(16)]
    with pytest.raises(TooManyCalls):
        limits.take(":4.9", 1000, 0)
    for slot in (*of_unknown, *others, *of_root):
        limits.leave(slot)
    assert (limits._bytes, limits._bytes_unidentified, limits._unidentified) == (0, 0, 0)
    assert limits._of_user.total() == limits._of_connection.total() == 0


def test_slots_have_a_size() -> None:
    limits = CallLimits()
    held = [limits.take(":1.1", 32 << 20, None) for _ in range(6)]
    with pytest.raises(TooManyCalls):
        limits.take(":1.2", 32 << 20, None)
    limits.take(":1.2", 32 << 20, 0)  # who is known does not need the slots of the unknown
    for slot in held:
        limits.leave(slot)
    limits.take(":1.2", 32 << 20, None)
