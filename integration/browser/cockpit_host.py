# SPDX-License-Identifier: Apache-2.0
"""The browser's way into the network of a host with Cockpit, and through its log-in.

Nothing of Cockpit is replaced: its web server asks for a password, PAM checks it, and its bridge calls the daemon.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from integration.browser.browser import Page
from integration.browser.cockpit import ALONE, USER
from integration.hosts.container.container_host import Host

PORT: Final = 9090
# Seconds for one connection attempt to the web server.
CONNECT: Final = 5.0
# Seconds for a log-in: TLS with a certificate that is made at first, PAM, sudo, and the start of the bridge.
LOG_IN: Final = 60.0
PASSWORD: Final = "a-Test-passw0rd"
_CLONE_NEWNET: Final = 0x40000000


def set_password(host: Host) -> None:
    """Give the user a password. Cockpit lets root in by none."""
    host.run(["chpasswd"], stdin=f"{USER}:{PASSWORD}\n")


@contextmanager
def relay(host: Host) -> Iterator[str]:
    """Yield an address of this machine that leads to the web server of the host, in each of its boots.

    Each boot has a network of its own, so every connection looks for the present one.
    """
    server = _Relay(lambda: host.container.leader)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="relay")
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.hang_up()
        server.server_close()


class _Relay(socketserver.ThreadingTCPServer):
    daemon_threads = False

    def __init__(self, leader: Callable[[], int]) -> None:
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self.leader = leader
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def finish_request(self, request: Any, _address: Any) -> None:
        with ExitStack() as stack:
            try:
                inside = stack.enter_context(_connect(self.leader()))
            except Exception:
                return
            for end in (request, inside):
                self._open.add(end)
                stack.callback(self._open.discard, end)
            with contextlib.suppress(OSError):
                _pump(request, inside)

    def hang_up(self) -> None:
        for end in tuple(self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def _connect(leader: int) -> socket.socket:
    """Connect from the network of a host. The thread stays in that network, so each connection has its own thread."""
    descriptor = os.open(f"/proc/{leader}/ns/net", os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(descriptor)
    return socket.create_connection(("127.0.0.1", PORT), timeout=CONNECT)


def _pump(one: socket.socket, other: socket.socket) -> None:
    """Forward in both directions until either end is closed."""
    one.settimeout(None)
    other.settimeout(None)
    with selectors.DefaultSelector() as ready:
        ready.register(one, selectors.EVENT_READ, other)
        ready.register(other, selectors.EVENT_READ, one)
        while True:
            for key, _ in ready.select():
                data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                if not data:
                    return
                key.data.sendall(data)


def log_in(tab: Page, address: str, *, admin: bool) -> None:
    """Log in on the log-in page. An administrator's session gets root's rights by sudo, with the same password."""
    tab.cdp("Network.clearBrowserCookies")
    tab.go(address + ALONE)
    tab.wait("return document.querySelector('#login-user-input')?.checkVisibility()", "the log-in page", LOG_IN)
    tab.run(
        """
        const [user, password, rights] = arguments;
        localStorage.setItem(`superuser:${user}`, rights);
        document.querySelector("#login-user-input").value = user;
        document.querySelector("#login-password-input").value = password;
        document.querySelector("#login-button").click();
        """,
        USER,
        PASSWORD,
        "any" if admin else "none",
    )
