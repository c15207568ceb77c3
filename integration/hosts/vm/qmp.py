# SPDX-License-Identifier: Apache-2.0
"""QEMU's control socket (QMP), as far as the harness needs it: commands in turn, and the events in between."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from pathlib import Path
from typing import Any

from integration.hosts.errors import HostGone, HostRingError

TIMEOUT = 180.0  # seconds for one command


class Qmp:
    """Safe to use from any thread. Raises HostGone once QEMU is gone, HostRingError for what QEMU refuses."""

    def __init__(self, path: Path) -> None:
        self.events: list[dict[str, Any]] = []
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.settimeout(TIMEOUT)
            self._socket.connect(str(path))
            self._stream = self._socket.makefile("rb")
        except OSError:
            self._socket.close()
            raise
        self._lock = threading.Lock()
        self._receive()  # the greeting
        self.execute("qmp_capabilities")

    def execute(self, command: str, **arguments: Any) -> Any:
        """Run a command of QEMU and return its result."""
        with self._lock:
            try:
                self._socket.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
            except OSError:
                raise HostGone("QEMU is gone") from None
            while True:
                message = self._receive()
                if "error" in message:
                    raise HostRingError(f"QEMU refused {command}: {message['error'].get('desc')}")
                if "return" in message:
                    return message["return"]

    def drain(self) -> None:
        """Read the events up to the end, after QEMU ended."""
        with self._lock, contextlib.suppress(HostGone):
            while True:
                self._receive()

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def _receive(self) -> dict[str, Any]:
        try:
            line = self._stream.readline()
        except (OSError, ValueError):
            line = b""
        if not line:
            raise HostGone("QEMU is gone")
        message: dict[str, Any] = json.loads(line)
        if "event" in message:
            self.events.append(message)
        return message
