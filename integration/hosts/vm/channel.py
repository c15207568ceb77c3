# SPDX-License-Identifier: Apache-2.0
"""The harness's end of the agent in the guest (`guest/vm_agent.py`): commands over virtio-serial, several at a time.

Safe to use from any thread. A channel lives as long as the QEMU that it is connected to; when that is gone, a
waiting thread gets HostGone. So it does when the agent starts again, because a soft reboot killed the one that had its
command.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration.hosts.errors import HostGone, HostTimeout

GRACE = 15.0  # seconds beyond the deadline of a command for the guest to say that it was killed


@dataclass(frozen=True, slots=True)
class Answer:
    head: Mapping[str, Any]
    stdout: bytes = b""
    stderr: bytes = b""


class Channel:
    def __init__(self, path: Path) -> None:
        """`path` is the socket of QEMU's character device, which listens already."""
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Answer]] = {}
        self._greetings: set[int] = set()
        self._guard = threading.Lock()
        self._sending = threading.Lock()
        self._gone = False
        self._reader = threading.Thread(target=self._read, name="vm-channel", daemon=True)
        self._reader.start()

    def close(self) -> None:
        """Does nothing the second time."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._socket.close()

    def greet(self, clock: float, timeout: float) -> Mapping[str, Any]:
        """Wait until the agent answers, and give it the time (seconds since 1970). Returns its `boot` and `up`."""
        return self._ask({"clock": clock}, b"", timeout, greeting=True).head

    def run(self, argv: Sequence[str], stdin: bytes, env: Mapping[str, str], timeout: float) -> Answer:
        """Run a command. `status` in the head is None if it was killed at its deadline of `timeout` seconds."""
        head = {"argv": list(argv), "env": dict(env), "stdin": len(stdin), "timeout": timeout}
        return self._ask(head, stdin, timeout + GRACE)

    def _ask(self, head: dict[str, Any], body: bytes, timeout: float, *, greeting: bool = False) -> Answer:
        number = next(self._numbers)
        answer: Future[Answer] = Future()
        with self._guard:
            if self._gone:
                raise HostGone("the guest is off")
            self._waiting[number] = answer
            if greeting:
                # It waits for the first start of the agent.
                self._greetings.add(number)
        try:
            with self._sending:
                self._socket.sendall(json.dumps({"id": number, **head}).encode() + b"\n" + body)
            return answer.result(timeout)
        except OSError as error:
            if isinstance(error, FutureTimeout):  # the same class as TimeoutError, which is an OSError
                raise HostTimeout(f"the guest's agent does not answer after {timeout:g} s") from None
            raise HostGone("the guest went off") from None
        finally:
            with self._guard:
                self._waiting.pop(number, None)
                self._greetings.discard(number)

    def _read(self) -> None:
        with self._socket.makefile("rb") as stream, contextlib.suppress(OSError, ValueError):
            while line := stream.readline():
                head = json.loads(line)
                if "started" in head:
                    self._fail("the guest's agent was started again", greetings=False)
                    continue
                out, err = stream.read(head.get("stdout", 0)), stream.read(head.get("stderr", 0))
                with self._guard:
                    answer = self._waiting.get(head["id"])
                # A command that an agent took over from an earlier one has failed already.
                if answer is not None and not answer.done():
                    answer.set_result(Answer(head, out, err))
        with self._guard:
            self._gone = True
        self._fail("the guest went off", greetings=True)

    def _fail(self, why: str, *, greetings: bool) -> None:
        with self._guard:
            left = [answer for number, answer in self._waiting.items() if greetings or number not in self._greetings]
        for answer in left:
            if not answer.done():
                answer.set_exception(HostGone(why))
