# SPDX-License-Identifier: Apache-2.0
"""A task beside the updates fails: it starts again, and nothing else notices."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from nodeagent import log
from nodeagent.agent import supervise
from nodeagent.agent.report.report import Report
from nodeagent.agent.supervise import keep_running
from nodeagent.errors import Terminal
from nodeagent.report.status import Status
from nodeagent.update.ports.events import Event, PhaseEntered, UpdateContext
from nodeagent.update.states import Phase


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    entries: list[str] = []

    class Logger:
        def error(self, text: str, **_fields: Any) -> None:
            entries.append(text)

    monkeypatch.setattr(log, "get", lambda _name: Logger())
    return entries


@pytest.mark.finding(
    "daemon: no bug ends it",
    "A task that only reports starts again after any error, and a sink that raises harms nothing else.",
)
@pytest.mark.looptime
@pytest.mark.parametrize(
    "error",
    [
        ValueError("year 10000 is out of range"),
        RecursionError(),
        Terminal("no", reason="No"),
        MemoryError(),
        KeyError(1),
    ],
)
async def test_it_starts_again(error: Exception, logged: list[str]) -> None:
    runs = 0

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs < 5:
            raise error

    await keep_running("the lease view", work, lambda: 0.5)
    assert runs == 5
    assert len(logged) == 1, "the same error is logged once"
    assert "the lease view failed" in logged[0]


@pytest.mark.looptime
async def test_pauses_grow_up_to_a_limit(logged: list[str]) -> None:
    times: list[float] = []

    async def work() -> None:
        times.append(asyncio.get_running_loop().time())
        raise ValueError(str(len(times)))

    task = asyncio.create_task(keep_running("x", work, lambda: 0.0))
    await asyncio.sleep(3600)
    task.cancel()
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses[0] == pytest.approx(supervise.FIRST_PAUSE)
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(supervise.LONGEST_PAUSE)
    assert len(logged) == len(times)


async def test_cancelling_ends_it() -> None:
    task = asyncio.create_task(keep_running("x", asyncio.Event().wait, lambda: 0.0))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.finding(
    "daemon: no bug ends it",
    "A task that only reports starts again after any error, and a sink that raises harms nothing else.",
)
def test_a_sink_that_fails_keeps_neither_the_update_nor_other_sinks(logged: list[str]) -> None:
    report, seen = Report(Status()), list[type[Event]]()

    def broken(_event: Event, _status: Status) -> None:
        raise ValueError("surrogates not allowed")

    report.add(broken)
    report.add(lambda event, _status: seen.append(type(event)))
    for _ in range(3):
        report.emit(PhaseEntered(UpdateContext(Phase.WRITING)))
    assert seen == [PhaseEntered] * 3
    assert report.status.phase is Phase.WRITING
    assert len(logged) == 1
