# SPDX-License-Identifier: Apache-2.0
"""Runs in the guest: executes commands that come over a virtio-serial port, several at a time. No network, no login.

A request is a line of JSON and then as many bytes of standard input as its `stdin` says; the answer is a line of JSON
and then the bytes of `stdout` and `stderr`. `id` pairs them up; answers come in the order in which commands end.

    {"id": 1, "argv": ["cat"], "env": {}, "stdin": 5, "timeout": 10}  {"id": 1, "status": 0, "stdout": 5, "stderr": 0}
    {"id": 2, "clock": 1700000000.5}                                  {"id": 2, "boot": "...", "up": 12.5}

At its start it sends {"started": true}: the commands of an earlier agent, which a soft reboot killed, have no answer.

`status` is null if the command was killed at its deadline (seconds), and `error` says why a command could not be
started. A command leads its own process group, all of which is killed at the deadline.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from typing import Any

PORT = "agent"
PORTS = "/sys/class/virtio-ports"  # not /dev/virtio-ports: those links are made late, by udev
CHUNK = 1 << 16
IDLE = 0.02  # seconds between two looks for a harness while none is connected


class Port:
    """A virtio-serial port as a stream. Reads wait for the harness to connect; there is no end of file."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._buffer = bytearray()
        self._writing = threading.Lock()

    def line(self) -> bytes:
        while (end := self._buffer.find(b"\n")) < 0:
            self._more()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            self._more()
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    def send(self, head: dict[str, Any], *bodies: bytes) -> None:
        data = memoryview(b"".join((json.dumps(head).encode(), b"\n", *bodies)))
        with self._writing:
            while data:
                data = data[os.write(self._fd, data[:CHUNK]) :]

    def _more(self) -> None:
        data = os.read(self._fd, CHUNK)
        if data:
            self._buffer += data
        else:
            # No client is connected. The work of an earlier harness is of no use to the next one.
            self._buffer.clear()
            time.sleep(IDLE)


def execute(port: Port, request: dict[str, Any], stdin: bytes) -> None:
    answer: dict[str, Any] = {"id": request["id"], "status": None}
    out = err = b""
    try:
        # Its deadline is communicate()'s.
        with subprocess.Popen(
            request["argv"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=request["env"],
            cwd="/",
            start_new_session=True,
        ) as child:
            try:
                out, err = child.communicate(stdin, timeout=request["timeout"])
                answer["status"] = child.returncode
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                out, err = child.communicate()
    except OSError as error:
        answer["error"] = str(error)
    port.send({**answer, "stdout": len(out), "stderr": len(err)}, out, err)


def set_clock(port: Port, request: dict[str, Any]) -> None:
    """A guest that was resumed from a snapshot still has the time of the snapshot."""
    if abs(request["clock"] - time.time()) > 1:  # noqa: TID251 - this is a program of the guest
        time.clock_settime(time.CLOCK_REALTIME, request["clock"])
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot_id:  # noqa: PTH123 - slow to import
        boot = boot_id.read().strip()
    port.send({"id": request["id"], "boot": boot, "up": time.monotonic()})


def find_port() -> str:
    while True:
        for name in os.listdir(PORTS):  # noqa: PTH208
            with open(f"{PORTS}/{name}/name", encoding="ascii") as about:  # noqa: PTH123
                if about.read().strip() == PORT:
                    return f"/dev/{name}"
        time.sleep(IDLE)


def main() -> None:
    port = Port(find_port())
    port.send({"started": True})
    while True:
        request = json.loads(port.line())
        if "clock" in request:
            set_clock(port, request)
        else:
            stdin = port.exactly(request["stdin"])
            threading.Thread(target=execute, args=(port, request, stdin), daemon=True).start()


if __name__ == "__main__":
    main()
