# SPDX-License-Identifier: Apache-2.0
"""One server program on loopback: started, paused and continued by signals, killed, and never left behind."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from integration.hosts.errors import HostRingError

STOP_TIMEOUT: Final = 15.0
TAIL: Final = 3000

# The thread that starts all servers.
_starter: Final = ThreadPoolExecutor(1, "servers")


class ServerFailed(HostRingError):
    """The server ended, or is not ready in time; the message has the end of its log."""


def free_port() -> int:
    """Return a free port that no outgoing connection gets until a server listens on it, or listens again.

    The kernel takes those from 32768 on.
    """
    while True:
        port = random.randrange(20000, 32768)
        with socket.socket() as sock, suppress(OSError):
            # Free on all addresses of loopback: members of etcd have one each.
            sock.bind(("", port))
            return port


class Server:
    def __init__(self, name: str, argv: Sequence[str], log: Path, ready: Callable[[], bool]) -> None:
        self.name = name
        self.log = log
        self._argv = argv
        self._ready = ready
        self._process: subprocess.Popen[bytes] | None = None
        # A stand-in of the kubelet starts servers in its own thread, while a test kills them in another one.
        self.lock = threading.RLock()

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} runs"
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        with self.lock, self.log.open("ab") as log:
            if self.alive:
                raise ServerFailed(f"{self.name} runs already")
            # The parent-death signal: a pytest that is killed cannot stop what it started. The kernel sends it when the
            # thread ends that started the server, so that is one that stays, and not that of the caller.
            self._process = _starter.submit(
                subprocess.Popen,
                ["setpriv", "--pdeathsig", "KILL", *self._argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ).result()

    def wait_ready(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not self._ready():
            if self._process is None or self._process.poll() is not None:
                raise ServerFailed(f"{self.name} ended: {self._tail()}")
            if time.monotonic() > deadline:
                raise ServerFailed(f"{self.name} is not ready after {timeout:g} s: {self._tail()}")
            time.sleep(0.1)

    def pause(self) -> None:
        """Connections stay open and nothing answers: what a client sees of a hung server or a cut network."""
        assert self._process is not None, f"{self.name} runs"
        self._process.send_signal(signal.SIGSTOP)
        # A thread that runs at that moment may still answer.
        while not _stopped(self._process.pid):
            time.sleep(0.005)

    def resume(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        with self.lock:
            if self._process is None:
                return
            self._process.send_signal(number)
            self._process.send_signal(signal.SIGCONT)
            try:
                self._process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _tail(self) -> str:
        return self.log.read_text(errors="replace")[-TAIL:]


def _stopped(pid: int) -> bool:
    """Return whether each thread of a process is stopped; True for a process that has ended."""
    states = []
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):
            states.append(path.read_text().rpartition(")")[2].split()[0])
    return all(state in "TtZX" for state in states)
