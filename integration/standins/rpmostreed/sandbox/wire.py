# SPDX-License-Identifier: Apache-2.0
"""Runs in the sandbox: D-Bus over a plain socket, for a bus or for a peer. Only the marshalling is GLib's.

Made for tests that must see what really arrives and in which order, so everything is kept as it came.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import Any

from integration.standins.rpmostreed.standin.gir import Gio, GLib

HEADER = 16
BUS = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")


class Wire:
    """One connection. A peer gets no Hello, because no bus would answer it."""

    def __init__(self, address: str, *, peer: bool) -> None:
        self.messages: list[dict[str, Any]] = []
        self.closed = False
        self.answers: dict[str, str] = {}  # method that others call here, to the body of the reply as text
        self.calls: list[Any] = []  # and how they called it
        self._replies: dict[int, Any] = {}
        self._arrived = threading.Condition()
        self._serial = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(_path(address))
        self._authenticate()
        threading.Thread(target=self._read, daemon=True).start()
        self.name = "" if peer else str(self.call(*BUS, "Hello", "()")["value"][0])

    def send(self, destination: str | None, path: str, interface: str, method: str, body: str) -> int:
        message = Gio.DBusMessage.new_method_call(destination, path, interface, method)
        variant = GLib.Variant.parse(None, body, None, None)
        if variant.n_children():
            message.set_body(variant)
        return self._send(message)

    def call(
        self, destination: str | None, path: str, interface: str, method: str, body: str, timeout: float = 20.0
    ) -> dict[str, Any]:
        return self.wait(self.send(destination, path, interface, method, body), timeout)

    def wait(self, serial: int, timeout: float) -> dict[str, Any]:
        """`value`, or `error` and `message`; `timeout` if none came; `closed` if none can come any more."""
        with self._arrived:
            self._arrived.wait_for(lambda: serial in self._replies or self.closed, timeout)
            reply = self._replies.get(serial)
        if reply is None:
            return {"closed" if self.closed else "timeout": True}
        body = reply.get_body()
        if reply.get_message_type() == Gio.DBusMessageType.ERROR:
            return {"error": reply.get_error_name(), "message": body.unpack()[0] if body is not None else ""}
        return {"value": body.unpack() if body is not None else [], "text": body.print_(True) if body else "()"}

    def wait_for(self, member: str, timeout: float) -> bool:
        """Return whether a signal of this name came, now or before."""
        with self._arrived:
            return self._arrived.wait_for(
                lambda: any(one["member"] == member for one in self.messages) or self.closed, timeout
            ) and any(one["member"] == member for one in self.messages)

    def wait_closed(self, timeout: float) -> bool:
        with self._arrived:
            return self._arrived.wait_for(lambda: self.closed, timeout)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)

    def _send(self, message: Any) -> int:
        with self._arrived:
            self._serial += 1
            serial = self._serial
        message.set_serial(serial)
        self._socket.sendall(bytes(message.to_blob(Gio.DBusCapabilityFlags.NONE)))
        return serial

    def _authenticate(self) -> None:
        self._socket.sendall(b"\0AUTH EXTERNAL " + str(os.getuid()).encode().hex().encode() + b"\r\n")
        answer = self._socket.recv(256)
        if not answer.startswith(b"OK "):
            raise ConnectionError(f"authentication: {answer!r}")
        self._socket.sendall(b"BEGIN\r\n")

    def _read(self) -> None:
        buffer = b""
        try:
            while data := self._socket.recv(65536):
                buffer += data
                while len(buffer) >= HEADER and len(buffer) >= (size := Gio.DBusMessage.bytes_needed(buffer[:HEADER])):
                    self._take(Gio.DBusMessage.new_from_blob(buffer[:size], Gio.DBusCapabilityFlags.NONE))
                    buffer = buffer[size:]
        except OSError:
            pass
        with self._arrived:
            self.closed = True
            self._arrived.notify_all()
        self._socket.close()

    def _take(self, message: Any) -> None:
        kind, body = message.get_message_type(), message.get_body()
        with self._arrived:
            if kind in (Gio.DBusMessageType.METHOD_RETURN, Gio.DBusMessageType.ERROR):
                self._replies[message.get_reply_serial()] = message
            self.messages.append(
                {
                    "kind": kind.value_nick,
                    "member": message.get_member(),
                    "interface": message.get_interface(),
                    "path": message.get_path(),
                    "sender": message.get_sender(),
                    "destination": message.get_destination(),
                    "signature": message.get_signature(),
                    "body": body.unpack() if body is not None else [],
                    "reply_to": message.get_reply_serial() if kind.value_nick != "signal" else None,
                    "at": time.monotonic(),
                }
            )
            self._arrived.notify_all()
        if kind == Gio.DBusMessageType.METHOD_CALL:
            self._answer(message)

    def _answer(self, message: Any) -> None:
        self.calls.append([message.get_member(), message.get_body().unpack() if message.get_body() else []])
        text = self.answers.get(message.get_member())
        if text is None:
            reply = Gio.DBusMessage.new_method_error_literal(message, f"{BUS[0]}.Error.UnknownMethod", "no")
        else:
            reply = message.new_method_reply()
            reply.set_body(GLib.Variant.parse(None, text, None, None))
        self._send(reply)


def _path(address: str) -> str:
    kind, _, value = address.partition(",")[0].partition(":")[2].partition("=")
    return f"\0{value}" if kind == "abstract" else value
