# SPDX-License-Identifier: Apache-2.0
"""The event loop of the daemon without a name server."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from nodeagent import log
from nodeagent.host import eventloop
from nodeagent.host.eventloop import DaemonLoop


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A resolver that does not answer before the test ends."""
    over = threading.Event()
    asked: list[str] = []

    def look_up(host: str, *_arguments: Any, **_hints: Any) -> Any:
        asked.append(host)
        over.wait(30)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    yield asked
    over.set()


@pytest.mark.finding(
    "daemon: name servers that do not answer",
    "A name server that does not answer neither holds up the end of the daemon nor fills the journal.",
)
def test_the_end_does_not_wait_for_a_look_up(silent: list[str]) -> None:
    async def work() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await asyncio.open_connection("api.example", 6443)

    started = time.monotonic()
    with asyncio.Runner(loop_factory=DaemonLoop) as runner:
        runner.run(work())
    assert silent == ["api.example"]
    assert time.monotonic() - started < 10  # the resolver takes 30


def test_look_ups_are_bounded(silent: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eventloop, "MAX_LOOKUPS", 2)

    async def work() -> None:
        tasks = [asyncio.create_task(asyncio.open_connection(f"h{n}", 1)) for n in range(5)]
        await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    with asyncio.Runner(loop_factory=DaemonLoop) as runner:
        runner.run(work())
    assert len(silent) == 2


def test_answers_and_failures_arrive() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        assert found[0][4] == ("127.0.0.1", 80)
        with pytest.raises(socket.gaierror):
            await loop.getaddrinfo("no number", 80, flags=socket.AI_NUMERICHOST)

    with asyncio.Runner(loop_factory=DaemonLoop) as runner:
        runner.run(work())


@pytest.mark.finding(
    "daemon: name servers that do not answer",
    "A name server that does not answer neither holds up the end of the daemon nor fills the journal.",
)
def test_a_look_up_that_was_given_up_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup()
    failure = {"message": "gaierror exception in shielded future", "exception": socket.gaierror(-3, "Temporary")}
    loop = DaemonLoop()
    loop.call_exception_handler(failure)
    assert capsys.readouterr().err == ""
    loop.call_exception_handler({"message": "Task exception was never retrieved", "exception": ValueError("bug")})
    assert "bug" in capsys.readouterr().err
    loop.close()


@pytest.mark.finding(
    "attack: programs that check a config",
    "A blocking call waits for a thread that exists if the host allows no further one.",
)
def test_a_host_without_free_threads_delays_blocking_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def work() -> list[int]:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        found = await asyncio.gather(*(asyncio.to_thread(lambda n=n: time.sleep(0.01) or n) for n in range(8)))
        with pytest.raises(OSError, match="temporarily unavailable"):
            await asyncio.open_connection("api.example", 6443)
        monkeypatch.undo()
        return found

    with asyncio.Runner(loop_factory=DaemonLoop) as runner:
        assert runner.run(work()) == list(range(8))
