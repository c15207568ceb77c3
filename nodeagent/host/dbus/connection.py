# SPDX-License-Identifier: Apache-2.0
"""One D-Bus connection over a unix socket: authentication, framing, replies, file descriptors.

Contract: no call blocks the loop, no task is left behind, and ``close`` frees the socket at once. When the connection
is lost, all pending calls fail with ``BusConnectionLost``. It does not reconnect; ``Bus`` opens a new connection.
Unrequested file descriptors are closed when they arrive, so no peer can exhaust them.

Any user of the bus may send messages of up to 32 MB. The header of a message decides whether its body is decoded: it
must be the reply to a pending call, or ``admit`` must accept it. All other bodies are dropped while they arrive and
cost neither memory nor time. After ``SLICE`` seconds of messages, other tasks of the loop run.
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
from urllib.parse import unquote

from nodeagent.errors import AgentError
from nodeagent.host.dbus.codec import MAX_ELEMENTS, decode, encode
from nodeagent.host.dbus.errors import BusRefused, BusTerminal, BusUnreachable, connection_lost
from nodeagent.host.dbus.header import HEADER_SIZE, Message, MessageKind, frame_size, header_size, read_header
from nodeagent.host.dbus.signals import BUS_NAME
from nodeagent.reasons import Reason

# Bytes; the system bus itself lets 32 MiB through.
MAX_MESSAGE = 64 << 20
# Bytes that are kept for a bus that stopped reading.
MAX_UNSENT = 128 << 20
# Seconds of message processing before other tasks run.
SLICE = 0.01
UNDECODED = -1
_CHUNK = 1 << 16
# The kernel's SCM_MAX_FD.
_MAX_FDS = 253
_MAX_AUTH_LINE = 4096
# Seconds.
_BACKLOG_PAUSE = 0.02


class Connection:
    """One connection, made by ``open``.

    ``admit`` gets the header of a call or signal. It returns how many elements of the body to decode, ``UNDECODED`` if
    ``on_message`` decodes the body later (``raw``), or 0 to drop the message. ``on_message`` gets admitted messages,
    ``on_undecodable`` the header of a message that could not be decoded. They run on the loop and must not raise.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.unique_name = ""
        self.lost: AgentError | None = None
        self.admit: Callable[[Message], int] = lambda _header: 0
        self.on_message: Callable[[Message], None] = lambda _message: None
        self.on_undecodable: Callable[[Message], None] = lambda _header: None
        self.on_lost: Callable[[AgentError], None] = lambda _error: None
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._serials = count(1)
        # Pending calls by serial, with the destination that may reply.
        self._waiting: dict[int, tuple[asyncio.Future[Message], str]] = {}
        self._incoming = bytearray()
        # Remaining bytes of a dropped body.
        self._skip = 0
        # Elements to decode of the message that has begun, 0 before its header was read.
        self._wanted = 0
        # Received descriptors whose message has not been read completely.
        self._fds: deque[int] = deque()
        self._unsent: deque[memoryview] = deque()
        self._unsent_size = 0

    @classmethod
    async def open(cls, address: str, *, peer: bool = False) -> Connection:
        """Return a connected and authenticated connection. It has no deadline; the caller sets one.

        ``peer`` means that the other side is the private socket of a service, without Hello and names.
        """
        connection = cls(await _connect(address))
        try:
            await connection._authenticate()
            connection._loop.add_reader(connection._socket, connection._readable)
            if not peer:
                hello = Message(MessageKind.CALL, "/org/freedesktop/DBus", BUS_NAME, "Hello", BUS_NAME)
                reply = await connection.call(hello)
                if reply.kind is not MessageKind.RETURN or not reply.body:
                    raise BusUnreachable(f"{address} did not answer as a bus", reason=Reason.BUS_UNREACHABLE)
                connection.unique_name = str(reply.body[0])
        except BaseException as error:
            # A cancelled connection attempt must not leave a socket behind.
            connection.close(f"could not connect: {error}")
            raise
        return connection

    async def call(self, message: Message) -> Message:
        """Send a call and return the reply, which may be an error. The caller closes ``fds``."""
        serial = next(self._serials)
        future: asyncio.Future[Message] = self._loop.create_future()
        self._waiting[serial] = future, message.destination
        try:
            self._write(encode(message, serial))
            return await future
        except BaseException:
            # Cancelled after the reply arrived: its descriptors have no other owner.
            if future.done() and not future.cancelled() and future.exception() is None:
                _close_all(future.result().fds)
            raise
        finally:
            self._waiting.pop(serial, None)

    def send(self, message: Message) -> None:
        self._write(encode(message, next(self._serials)))

    def close(self, cause: str = "closed") -> None:
        """Free the socket and fail the pending calls. Calling it again is safe."""
        if self.lost is not None:
            return
        self.lost = connection_lost(cause)
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        _close_all(self._fds)
        self._fds.clear()
        self._unsent.clear()
        self._unsent_size = 0
        for future, _destination in self._waiting.values():
            if not future.done():
                future.set_exception(connection_lost(cause))
        self.on_lost(self.lost)

    # -- authentication -------------------------------------------------------------------------------------------

    async def _authenticate(self) -> None:
        # EXTERNAL authenticates by the credentials of the socket; the id only has to match them.
        uid = str(os.geteuid()).encode().hex()
        if not (answer := await self._auth(f"\0AUTH EXTERNAL {uid}")).startswith("OK"):
            raise BusRefused(f"the bus refused the connection: {answer[:100]}", reason=Reason.BUS_REFUSED)
        # Without support it answers ERROR and never sends descriptors.
        await self._auth("NEGOTIATE_UNIX_FD")
        await self._loop.sock_sendall(self._socket, b"BEGIN\r\n")

    async def _auth(self, line: str) -> str:
        await self._loop.sock_sendall(self._socket, f"{line}\r\n".encode())
        answer = bytearray()
        # The server sends nothing more before the answer, so reading ahead cannot swallow a message.
        while not answer.endswith(b"\r\n"):
            data = await self._loop.sock_recv(self._socket, _CHUNK)
            # The limit protects against a server that never ends its line.
            if not data or len(answer) > _MAX_AUTH_LINE:
                raise connection_lost("closed during authentication")
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
        # Lost descriptors cannot be assigned to messages any more, so the stream is useless.
        if flags & socket.MSG_CTRUNC:
            self.close("file descriptors were lost")
            return
        if not data:
            self.close("closed by the other side")
            return
        self._incoming += data
        self._take_messages()

    def _take_messages(self) -> None:
        """Process the received messages for at most ``SLICE`` seconds. Then other tasks run before it continues."""
        until = self._loop.time() + SLICE
        while self.lost is None and self._take_one():
            if self._loop.time() > until:
                self._loop.remove_reader(self._socket)
                # The socket is not read in the meantime, so messages stay in order and the kernel slows the sender
                # down.
                self._loop.call_soon(self._take_more)
                return
        # Descriptors arrive with the first byte of their message. With an empty buffer, that message does not exist.
        if self._fds and not self._incoming:
            self.close("file descriptors that belong to no message")

    def _take_more(self) -> None:
        if self.lost is None:
            self._loop.add_reader(self._socket, self._readable)
            self._take_messages()

    def _take_one(self) -> bool:
        """Process one message. Returns False if more data must arrive first, or if it has ended the connection."""
        # The body of a message that is not read is dropped as it arrives, without being collected in memory.
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
            self._wanted = self._wanted_elements()
            if not self._wanted:
                del self._incoming[:start]
                self._skip = size - start
                return True
        if len(self._incoming) < size:
            return False
        # The view avoids a second copy. It is released at the end of the block, because a bytearray with a view cannot
        # shrink.
        with memoryview(self._incoming) as view:
            data = bytes(view[:size])
        del self._incoming[:size]
        elements, self._wanted = self._wanted, 0
        self._take_message(data, elements)
        return self.lost is None

    def _wanted_elements(self) -> int:
        """Return the number of elements of the next message to decode. Descriptors arrive with its first byte."""
        try:
            header = read_header(self._incoming)
        except ValueError:
            # The frame is valid, so the stream is intact, and an invalid message of another user must not end the
            # connection. It must if the owner of the pending descriptors is no longer known.
            if self._fds:
                self.close("an invalid message with file descriptors")
            return 0
        if header.kind in (MessageKind.RETURN, MessageKind.ERROR):
            # A late reply is dropped too.
            wanted = MAX_ELEMENTS if self._awaited(header) is not None else 0
        else:
            wanted = self.admit(header) if header.kind is not MessageKind.OTHER else 0
        if not wanted:
            _close_all(self._take_fds(header.fd_count))
        return wanted

    def _awaited(self, reply: Message) -> asyncio.Future[Message] | None:
        """Return the pending call that this reply answers.

        For a call to a unique name, the sender must be that name, or the bus, which answers for a missing service. For
        a call to a well-known name the bus itself ensures that only the owner replies.
        """
        # The sender of a reply is checked, because any connection may send a reply with a guessed serial.
        future, called = self._waiting.get(reply.reply_serial, (None, ""))
        if future is None or future.done():
            return None
        has_unique_name = called.startswith(":") or called == BUS_NAME
        return future if not has_unique_name or reply.sender in (called, BUS_NAME) else None

    def _take_message(self, data: bytes, elements: int) -> None:
        header = read_header(data)
        fds = self._take_fds(header.fd_count)
        try:
            message = replace(header, raw=data) if elements == UNDECODED else decode(data, elements)
            message = replace(message, fds=fds)
        except Exception as error:  # noqa: BLE001 - any error of dbus-next, for a message that the bus should have rejected
            _close_all(fds)
            if header.kind not in (MessageKind.RETURN, MessageKind.ERROR):
                self.on_undecodable(header)
            elif (future := self._awaited(header)) is not None:
                text = f"the reply cannot be decoded: {error}"
                future.set_exception(BusTerminal(text, reason=Reason.UNEXPECTED_REPLY))
            return
        if header.kind not in (MessageKind.RETURN, MessageKind.ERROR):
            _close_all(fds)
            self.on_message(message)
        elif (future := self._awaited(header)) is not None:
            future.set_result(message)
        else:
            # Cancelled while the reply arrived.
            _close_all(fds)

    def _take_fds(self, wanted: int) -> tuple[int, ...]:
        return tuple(self._fds.popleft() for _ in range(min(wanted, len(self._fds))))

    # -- writing --------------------------------------------------------------------------------------------------

    def _write(self, data: bytes) -> None:
        if self.lost is not None:
            raise connection_lost(self.lost.message)
        self._unsent.append(memoryview(data))
        self._unsent_size += len(data)
        # The first message is sent at once. The others follow when the socket is writable.
        if len(self._unsent) == 1:
            self._writable()
        # A bus that does not read would let the queue grow without end.
        if self._unsent_size > MAX_UNSENT:
            self.close("the bus stopped reading")

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
                    # The backlog is full. A unix socket returns EAGAIN and is then *not* connecting, which the loop's
                    # own sock_connect takes for success.
                    await asyncio.sleep(_BACKLOG_PAUSE)
                else:
                    return sock
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
    unreachable = BusUnreachable(f"cannot connect to {address}: {failure}", reason=Reason.BUS_UNREACHABLE)
    unreachable.denied = isinstance(failure, PermissionError)
    raise unreachable from failure


def _close_all(fds: deque[int] | tuple[int, ...]) -> None:
    for fd in fds:
        os.close(fd)


_DEFAULT = "unix:path=/run/dbus/system_bus_socket"


def system_bus_address() -> str:
    return os.environ.get("DBUS_SYSTEM_BUS_ADDRESS") or _DEFAULT


def socket_paths(address: str) -> list[str]:
    """Return the sockets in the order in which they are tried. An abstract socket starts with NUL, as in ``socket``."""
    paths = []
    for server in address.split(";"):
        transport, _, rest = server.partition(":")
        values = dict(pair.partition("=")[::2] for pair in rest.split(",") if pair)
        if transport == "unix" and "path" in values:
            paths.append(unquote(values["path"]))
        elif transport == "unix" and "abstract" in values:
            paths.append("\0" + unquote(values["abstract"]))
    if not paths:
        raise BusTerminal(f"no unix socket in the bus address {address!r}", reason=Reason.BUS_ADDRESS_INVALID)
    return paths
