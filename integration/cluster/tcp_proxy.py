# SPDX-License-Identifier: Apache-2.0
"""The API server inside a host that has no network but its own loopback: a socket of the file system in between."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from integration.hosts.container.container_host import Host

INSIDE: Final = "/srv/api"
CHUNK: Final = 1 << 16


@contextlib.contextmanager
def relay(directory: Path, port: int) -> Iterator[None]:
    """Connect clients of `directory`/socket to the port of this machine."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(directory / "socket"))
        listening.listen()
        listening.settimeout(0.2)
        stop = threading.Event()
        accepting = threading.Thread(target=_accept, args=(listening, port, stop), daemon=True)
        accepting.start()
        try:
            yield
        finally:
            stop.set()
            accepting.join()


def _accept(listening: socket.socket, port: int, stop: threading.Event) -> None:
    threads = []
    while not stop.is_set():
        try:
            inside, _ = listening.accept()
        except TimeoutError:
            continue
        threads.append(threading.Thread(target=_carry, args=(inside, port, stop), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join()


def _carry(inside: socket.socket, port: int, stop: threading.Event) -> None:
    with inside, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as outside:
        other = {inside: outside, outside: inside}
        inside.settimeout(5)
        with selectors.DefaultSelector() as selector:
            for one in other:
                selector.register(one, selectors.EVENT_READ, one)
            while not stop.is_set():
                for key, _ in selector.select(0.2):
                    end: socket.socket = key.data
                    data = end.recv(CHUNK)
                    if not data:
                        return
                    other[end].sendall(data)


def listen_inside(host: Host, port: int) -> None:
    """Before the first boot: the host's 127.0.0.1:`port` leads to what is bound at INSIDE."""
    units = "/etc/systemd/system"
    host.write(f"{units}/api.socket", f"[Socket]\nListenStream=127.0.0.1:{port}\n")
    proxy = f"/usr/lib/systemd/systemd-socket-proxyd {INSIDE}/socket"
    host.write(f"{units}/api.service", f"[Service]\nExecStart={proxy}\n")
    wants = host.root / "etc/systemd/system/sockets.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / "api.socket").symlink_to("../api.socket")
