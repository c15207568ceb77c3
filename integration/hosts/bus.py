# SPDX-License-Identifier: Apache-2.0
"""Asks services of a test host over its system bus, from outside.

A wait asks twenty times a second, and a program in the host takes 12 ms of processor time to ask once; this takes one.
The bus of the host sees a client of uid 0 like any other. Only what is asked for every few milliseconds, or hundreds
of times in a run, is asked this way: the commands that people use have tests that use them.

A virtual machine has no socket that could be reached from outside: there a program does ask.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import weakref
from collections.abc import Sequence
from typing import Any

from integration.hosts.container.container_host import Host
from integration.hosts.errors import CommandFailed
from integration.hosts.testhost import COMMAND_TIMEOUT, TestHost
from nodeagent.host.dbus.codec import decode, encode
from nodeagent.host.dbus.header import HEADER_SIZE, Message, MessageKind, frame_size

SOCKET = "run/dbus/system_bus_socket"
TIMEOUT = 30.0  # seconds for an answer, unless the caller sets another limit
BUS = "org.freedesktop.DBus"
PROPERTIES = "org.freedesktop.DBus.Properties"


class Connection:
    """One connection to the bus of one boot. It closes when it fails, and when it is garbage."""

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self._serials = itertools.count(1)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(TIMEOUT)
        try:
            self._socket.connect(f"/proc/{leader}/root/{SOCKET}")
            self._socket.sendall(b"\0AUTH EXTERNAL 30\r\nBEGIN\r\n")  # 30: uid 0, as hex of its digits
            line = b""
            while not line.endswith(b"\r\n"):
                line += self._receive(1)
            if not line.startswith(b"OK "):
                raise CommandFailed(f"the bus of the host says {line!r}")
            self.call(BUS, "/org/freedesktop/DBus", BUS, "Hello")
        except OSError as error:
            self.close()
            raise CommandFailed(f"no bus in the host: {error}") from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def __del__(self) -> None:
        self.close()

    def call(
        self,
        name: str,
        path: str,
        interface: str,
        member: str,
        signature: str = "",
        body: Sequence[Any] = (),
        timeout: float = TIMEOUT,
    ) -> Sequence[Any]:
        """The answer's body. Raises CommandFailed with the error's name and text, or with what became of the bus.

        `timeout` is in seconds.
        """
        serial = next(self._serials)
        message = Message(MessageKind.CALL, path, interface, member, name, signature=signature, body=body)
        try:
            self._socket.settimeout(timeout)
            self._socket.sendall(encode(message, serial))
            while (answer := self._message()).reply_serial != serial:
                pass  # signals to us, such as NameAcquired
        except OSError as error:
            self.close()
            raise CommandFailed(f"{interface}.{member}: {str(error) or type(error).__name__}") from None
        except BaseException:
            self.close()  # in the middle of a message
            raise
        if answer.kind == MessageKind.ERROR:
            raise CommandFailed(f"{interface}.{member}: {answer.error_name}: {''.join(map(str, answer.body))}")
        return answer.body

    def _message(self) -> Message:
        head = self._receive(HEADER_SIZE)
        return decode(head + self._receive(frame_size(head) - HEADER_SIZE))

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionResetError("the bus closed the connection")
            data += part
        return bytes(data)


_connections: weakref.WeakKeyDictionary[Host, Connection] = weakref.WeakKeyDictionary()


def ask(
    host: TestHost, name: str, path: str, interface: str, member: str, signature: str = "", body: Sequence[Any] = ()
) -> Sequence[Any]:
    """As Connection.call, for questions, which may be asked twice: over the last connection, if it still leads there.

    Raises HostGone between two boots.
    """
    if not isinstance(host, Host):
        return _by_command(host, [name, path, interface, member], signature, body, TIMEOUT)
    leader = host.container.leader
    kept = _connections.pop(host, None)
    if kept is not None and kept.leader == leader:
        with contextlib.suppress(CommandFailed):
            answer = kept.call(name, path, interface, member, signature, body)
            _connections[host] = kept
            return answer
    if kept is not None:
        kept.close()
    fresh = _connections[host] = Connection(leader)
    return fresh.call(name, path, interface, member, signature, body)


def order(
    host: TestHost,
    name: str,
    path: str,
    interface: str,
    member: str,
    signature: str,
    body: Sequence[Any],
    timeout: float,
) -> Sequence[Any]:
    """Call as ``Connection.call`` does, once: the call must not be repeated."""
    if not isinstance(host, Host):
        return _by_command(host, [name, path, interface, member], signature, body, timeout)
    with contextlib.closing(Connection(host.container.leader)) as connection:
        return connection.call(name, path, interface, member, signature, body, timeout)


def get(host: TestHost, name: str, path: str, interface: str, prop: str) -> Any:
    """The value of a property."""
    if not isinstance(host, Host):
        return json.loads(_busctl(host, "get-property", [name, path, interface, prop], TIMEOUT))["data"]
    return ask(host, name, path, PROPERTIES, "Get", "ss", (interface, prop))[0]


def _by_command(
    host: TestHost, names: Sequence[str], signature: str, body: Sequence[Any], timeout: float
) -> Sequence[Any]:
    """`body` may have strings, numbers, and empty arrays."""
    arguments = ["0" if isinstance(value, (dict, list)) and not value else str(value) for value in body]
    said = _busctl(host, "call", [*names, *([signature, *arguments] if signature else [])], timeout)
    answer: Sequence[Any] = json.loads(said)["data"] if said.strip() else []
    return answer


def _busctl(host: TestHost, command: str, arguments: Sequence[str], timeout: float) -> str:
    # Its own deadline is the same, so that it says what happened; ours is for the machine.
    argv = ["busctl", "--json=short", f"--timeout={timeout:g}s", command, "--", *arguments]
    return host.run(argv, timeout=timeout + COMMAND_TIMEOUT).stdout
