"""One D-Bus connection over a unix socket: authentication, framing, replies, file descriptors.

Contract: nothing here blocks the loop, no task is left behind, ``close`` frees the socket at once, and a connection
that dropped fails everything that waits on it with ``BusConnectionLost`` and never comes back: ``Bus`` makes a new one.
Descriptors that nobody asked for are closed as they come in, so no peer can fill our table.

Any user of the bus may send us anything, up to its limit of 32 MB. The header of a message decides whether its body is
wanted: as the reply to a call of ours, or because ``admit`` says so. All other bodies are dropped as they arrive, and
cost neither memory nor time. After ``SLICE`` seconds of messages the loop gets its turn.
"""

from __future__ import annotations

import array
import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import count

from nodeagent.errors import AgentError
from nodeagent.host.dbus.address import socket_paths
from nodeagent.host.dbus.codec import MAX_ELEMENTS, decode, encode
from nodeagent.host.dbus.errors import BusRefused, BusTerminal, BusUnreachable, connection_lost
from nodeagent.host.dbus.header import HEADER_SIZE, Kind, Message, frame_size, header_size, read_header
from nodeagent.host.dbus.match import BUS_NAME

__all__ = ["UNDECODED", "Connection"]

MAX_MESSAGE = 64 << 20  # bytes; the system bus itself lets 32 MiB through
MAX_UNSENT = 128 << 20  # bytes that we hold for a bus that stopped reading
SLICE = 0.01  # seconds of messages in one turn of the loop
UNDECODED = -1
_CHUNK = 1 << 16
_MAX_FDS = 253  # the kernel's SCM_MAX_FD
_MAX_AUTH_LINE = 4096
_BACKLOG_PAUSE = 0.02  # seconds


class Connection:
    """Made by ``open``. ``on_message`` gets the calls and signals that ``admit`` let in, which returns the number of
    elements of the body that are decoded, ``UNDECODED`` for one that ``on_message`` decodes later (``raw``), or 0 for a
    message that is not wanted; ``on_odd`` gets the header of one that could not be decoded. They are called from the
    loop and must not raise."""

    def __init__(self, sock: socket.socket) -> None:
        self.unique_name = ""
        self.lost: AgentError | None = None
        self.admit: Callable[[Message], int] = lambda _header: 0
        self.on_message: Callable[[Message], None] = lambda _message: None
        self.on_odd: Callable[[Message], None] = lambda _header: None
        self.on_lost: Callable[[AgentError], None] = lambda _error: None
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._serials = count(1)
        self._waiting: dict[int, tuple[asyncio.Future[Message], str]] = {}
        self._incoming = bytearray()
        self._skip = 0  # bytes of a body that nobody wants
        self._wanted = 0  # elements of the message that has begun, 0 before its header was read
        self._fds: deque[int] = deque()
        self._unsent: deque[memoryview] = deque()
        self._unsent_size = 0

    @classmethod
    async def open(cls, address: str, *, peer: bool = False) -> Connection:
        """Connected and authenticated; without a deadline of its own, so wrap it in one.

        ``peer``: the other side is a service's private socket, not a bus: there is no Hello and no name.
        """
        connection = cls(await _connect(address))
        try:
            await connection._authenticate()
            connection._loop.add_reader(connection._socket, connection._readable)
            if not peer:
                hello = Message(Kind.CALL, "/org/freedesktop/DBus", BUS_NAME, "Hello", BUS_NAME)
                reply = await connection.call(hello)
                if reply.kind is not Kind.RETURN or not reply.body:
                    raise BusUnreachable(f"{address} did not answer as a bus", reason="BusUnreachable")
                connection.unique_name = str(reply.body[0])
        except BaseException as error:
            connection.close(f"could not connect: {error}")
            raise
        return connection

    async def call(self, message: Message) -> Message:
        """The reply, an error reply included. Whoever passes this on has to close ``fds``."""
        serial = next(self._serials)
        future: asyncio.Future[Message] = self._loop.create_future()
        self._waiting[serial] = future, message.destination
        try:
            self._write(encode(message, serial))
            return await future
        except BaseException:
            # Cancelled with the reply already here: nobody will ever see its descriptors.
            if future.done() and not future.cancelled() and future.exception() is None:
                _close_all(future.result().fds)
            raise
        finally:
            self._waiting.pop(serial, None)

    def send(self, message: Message) -> None:
        self._write(encode(message, next(self._serials)))

    def close(self, why: str = "closed") -> None:
        """Frees the socket and fails what waits. Safe to call again."""
        if self.lost is not None:
            return
        self.lost = connection_lost(why)
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        _close_all(self._fds)
        self._fds.clear()
        self._unsent.clear()
        self._unsent_size = 0
        for future, _destination in self._waiting.values():
            if not future.done():
                future.set_exception(connection_lost(why))
        self.on_lost(self.lost)

    # -- authentication -------------------------------------------------------------------------------------------

    async def _authenticate(self) -> None:
        uid = str(os.geteuid()).encode().hex()
        if not (answer := await self._auth(f"\0AUTH EXTERNAL {uid}")).startswith("OK"):
            raise BusRefused(f"the bus does not let us in: {answer[:100]}", reason="BusRefused")
        await self._auth("NEGOTIATE_UNIX_FD")  # a transport that cannot says ERROR, and then no descriptor ever comes
        await self._loop.sock_sendall(self._socket, b"BEGIN\r\n")

    async def _auth(self, line: str) -> str:
        await self._loop.sock_sendall(self._socket, f"{line}\r\n".encode())
        answer = bytearray()
        # Nothing follows a line before we answered it, so reading ahead cannot swallow a message.
        while not answer.endswith(b"\r\n"):
            data = await self._loop.sock_recv(self._socket, _CHUNK)
            if not data or len(answer) > _MAX_AUTH_LINE:
                raise connection_lost("it was closed during authentication")
            answer += data
        return answer.decode("ascii", "replace").strip()

    # -- reading --------------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        try:
            data, ancillary, flags, _ = self._socket.recvmsg(
                _CHUNK, socket.CMSG_SPACE(_MAX_FDS * 4), socket.MSG_CMSG_CLOEXEC
            )
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(str(error))
            return
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self._fds.extend(array.array("i", payload[: len(payload) // 4 * 4]))
        if flags & socket.MSG_CTRUNC:
            self.close("descriptors were lost")
            return
        if not data:
            self.close("the other side closed it")
            return
        self._incoming += data
        self._take_messages()

    def _take_messages(self) -> None:
        """What has arrived, but not for longer than a slice: then the rest of the loop has its turn, and the other side
        waits with more."""
        until = self._loop.time() + SLICE
        while self.lost is None and self._take_one():
            if self._loop.time() > until:
                self._loop.remove_reader(self._socket)
                self._loop.call_soon(self._take_more)
                return
        if self._fds and not self._incoming:
            self.close("descriptors that belong to no message")

    def _take_more(self) -> None:
        if self.lost is None:
            self._loop.add_reader(self._socket, self._readable)
            self._take_messages()

    def _take_one(self) -> bool:
        """False if nothing can be done before more arrives."""
        if self._skip:
            dropped = min(self._skip, len(self._incoming))
            del self._incoming[:dropped]
            self._skip -= dropped
        if self._skip or len(self._incoming) < HEADER_SIZE:
            return False
        try:
            size = frame_size(self._incoming)
        except ValueError as error:
            self.close(str(error))
            return False
        if size > MAX_MESSAGE:
            self.close(f"a message of {size} bytes")
            return False
        if not self._wanted:
            start = header_size(self._incoming)
            if len(self._incoming) < start:
                return False
            self._wanted = self._look()
            if not self._wanted:
                del self._incoming[:start]
                self._skip = size - start
                return True
        if len(self._incoming) < size:
            return False
        with memoryview(self._incoming) as view:
            data = bytes(view[:size])
        del self._incoming[:size]
        elements, self._wanted = self._wanted, 0
        self._take_message(data, elements)
        return True

    def _look(self) -> int:
        """How many elements of the message that begins here are wanted. Its descriptors are in already: they come with
        its first byte."""
        try:
            header = read_header(self._incoming)
        except ValueError:
            # The frame is sound, so the stream is; a stranger's odd message must not cost us the connection, unless we
            # can no longer tell whose the descriptors are.
            if self._fds:
                self.close("a message that makes no sense, with descriptors")
            return 0
        if header.kind in (Kind.RETURN, Kind.ERROR):
            wanted = MAX_ELEMENTS if self._awaited(header) is not None else 0  # 0: also for one that came too late
        else:
            wanted = self.admit(header) if header.kind is not Kind.OTHER else 0
        if not wanted:
            _close_all(self._take_fds(header.fd_count))
        return wanted

    def _awaited(self, reply: Message) -> asyncio.Future[Message] | None:
        """A call of ours that waits for it. The bus itself answers for those that do not; who owns a well-known name,
        the bus knows, and lets no one else answer."""
        future, asked = self._waiting.get(reply.reply_serial, (None, ""))
        if future is None or future.done():
            return None
        by_name = asked.startswith(":") or asked == BUS_NAME
        return future if not by_name or reply.sender in (asked, BUS_NAME) else None

    def _take_message(self, data: bytes, elements: int) -> None:
        header = read_header(data)
        fds = self._take_fds(header.fd_count)
        try:
            message = replace(header, raw=data) if elements == UNDECODED else decode(data, elements)
            message = replace(message, fds=fds)
        except Exception as error:  # noqa: BLE001 - of dbus-next, for what the bus should not have let through
            _close_all(fds)
            if header.kind not in (Kind.RETURN, Kind.ERROR):
                self.on_odd(header)
            elif (future := self._awaited(header)) is not None:
                text = f"the reply cannot be decoded: {error}"
                future.set_exception(BusTerminal(text, reason="UnexpectedReply"))
            return
        if header.kind not in (Kind.RETURN, Kind.ERROR):
            _close_all(fds)
            self.on_message(message)
        elif (future := self._awaited(header)) is not None:
            future.set_result(message)
        else:
            _close_all(fds)  # canceled while it arrived

    def _take_fds(self, wanted: int) -> tuple[int, ...]:
        return tuple(self._fds.popleft() for _ in range(min(wanted, len(self._fds))))

    # -- writing --------------------------------------------------------------------------------------------------

    def _write(self, data: bytes) -> None:
        if self.lost is not None:
            raise connection_lost(self.lost.message)
        self._unsent.append(memoryview(data))
        self._unsent_size += len(data)
        if len(self._unsent) == 1:
            self._writable()
        if self._unsent_size > MAX_UNSENT:
            self.close("the bus does not read any more")

    def _writable(self) -> None:
        try:
            while self._unsent:
                sent = self._socket.send(self._unsent[0])
                self._unsent_size -= sent
                if sent == len(self._unsent[0]):
                    self._unsent.popleft()
                else:
                    self._unsent[0] = self._unsent[0][sent:]
            self._loop.remove_writer(self._socket)
        except (BlockingIOError, InterruptedError):
            self._loop.add_writer(self._socket, self._writable)
        except OSError as error:
            self.close(str(error))


async def _connect(address: str) -> socket.socket:
    failure: OSError | None = None
    for path in socket_paths(address):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            while True:
                try:
                    sock.connect(path)
                except BlockingIOError:
                    # The backlog is full. A unix socket says EAGAIN and is then *not* connecting, which the loop's own
                    # sock_connect takes for success.
                    await asyncio.sleep(_BACKLOG_PAUSE)
                else:
                    return sock
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
    raise BusUnreachable(f"cannot connect to {address}: {failure}", reason="BusUnreachable") from failure


def _close_all(fds: deque[int] | tuple[int, ...]) -> None:
    for fd in fds:
        os.close(fd)
