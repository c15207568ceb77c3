# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.host.clock import SystemClock
from nodeagent.host.notify import Notifier, watchdog_interval


@pytest.fixture(params=["path", "abstract"])
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    name = str(tmp_path / "notify") if request.param == "path" else f"@nodeagent-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(name.replace("@", "\0"))
        listening.setblocking(False)
        yield listening, name


def test_messages(listener: tuple[socket.socket, str]) -> None:
    listening, name = listener
    notifier = Notifier(name)
    notifier.ready()
    notifier.status("Acting: restart x\nREADY=0")
    notifier.watchdog()
    notifier.stopping()
    heard = [listening.recv(4096).decode() for _ in range(4)]
    notifier.close()
    assert heard == ["READY=1", "STATUS=Acting: restart x READY=0", "WATCHDOG=1", "STOPPING=1"]


def test_a_full_queue_or_no_listener_is_nobodys_problem(listener: tuple[socket.socket, str]) -> None:
    _, name = listener
    notifier = Notifier(name)
    for _ in range(5000):
        notifier.status("x")
    notifier.close()
    notifier.ready()
    gone = Notifier("/nonexistent/notify")
    gone.ready()
    gone.close()


@pytest.mark.parametrize(
    ("usec", "pid", "interval"),
    [("60000000", None, 30.0), ("60000000", "1", None), ("x", None, None), (None, None, None), ("0", None, None)],
)
def test_watchdog(monkeypatch: pytest.MonkeyPatch, usec: str | None, pid: str | None, interval: float | None) -> None:
    for name, value in (("WATCHDOG_USEC", usec), ("WATCHDOG_PID", pid)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert watchdog_interval() == interval


def test_the_clock_reads_as_the_contract_says() -> None:
    clock = SystemClock()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", clock.now())
    assert clock.monotonic() <= clock.monotonic()
