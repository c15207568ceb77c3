# SPDX-License-Identifier: Apache-2.0
"""The notification protocol of systemd (sd_notify(3)): ready, status, watchdog.

A message is a datagram that is sent or dropped, so reporting never blocks the agent.
"""

from __future__ import annotations

import contextlib
import os
import socket

from nodeagent.core.display import text

# Characters, of up to four bytes each: systemd drops a notification of more than 4096 bytes.
MAX_STATUS = 1000


class Notifier:
    """Sends notifications, if there is a socket. ``address`` is for tests; the default is ``$NOTIFY_SOCKET``."""

    def __init__(self, address: str | None = None) -> None:
        name = os.environ.get("NOTIFY_SOCKET", "") if address is None else address
        self._socket: socket.socket | None = None
        if name.startswith(("/", "@")):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
            self._address = f"\0{name[1:]}" if name.startswith("@") else name

    def ready(self) -> None:
        self._send("READY=1")

    def status(self, line: str) -> None:
        self._send(f"STATUS={text(line, MAX_STATUS)}")

    def watchdog(self) -> None:
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, message: str) -> None:
        if self._socket is None:
            return
        # No receiver, or its queue is full.
        with contextlib.suppress(OSError):
            self._socket.sendto(message.encode("utf-8", "replace"), self._address)


def watchdog_interval() -> float | None:
    """Return the seconds between two watchdog messages, half of systemd's limit; None without a watchdog."""
    if os.environ.get("WATCHDOG_PID") not in (None, str(os.getpid())):
        return None
    try:
        allowed = int(os.environ.get("WATCHDOG_USEC", "0"))
    except ValueError:
        return None
    return allowed / 2e6 if allowed > 0 else None
