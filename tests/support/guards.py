# SPDX-License-Identifier: Apache-2.0
"""Guards that every test gets: no task or child process is left behind, and nothing blocks the loop."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import psutil
import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from hypothesis import HealthCheck, settings

import nodeagent
from nodeagent.cli import _io, _schemas
from nodeagent.errors import AgentError
from nodeagent.reasons import reason_of

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")

# Times that looptime polls for I/O before it moves the clock. Its default of 42 takes a quarter of the time of a kill.
NOOP_CYCLES = 4

PRODUCT = os.path.dirname(nodeagent.__file__)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Give pytest-asyncio a loop for the time between tests, and close it: a loop of its own would stay open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    session.config.add_cleanup(loop.close)


# Once in a worker: to replace forty functions for each test takes longer than most tests do.
@pytest.fixture(autouse=True, scope="session")
def no_blocking_calls() -> Iterator[BlockBuster]:
    with blockbuster_ctx("nodeagent") as blockbuster:
        yield blockbuster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.fixturenames.insert(0, "no_leaked_tasks")  # a marker would come too late here
        if item.get_closest_marker("looptime") is not None:
            item.add_marker(pytest.mark.looptime(noop_cycles=NOOP_CYCLES), append=False)


def pytest_collection_finish() -> None:
    """Exempt imported objects from the collector: each collection then takes a few ms instead of 80."""
    gc.freeze()


@pytest.fixture
async def no_leaked_tasks() -> AsyncIterator[None]:
    """Check every test that has a loop. A synchronous one has none to leak into."""
    yield
    mine = asyncio.current_task()
    left = [task for task in asyncio.all_tasks() if task is not mine and not task.done()]
    assert not left, f"tasks left behind: {left}"


@pytest.fixture(autouse=True)
def no_leaked_children() -> Iterator[None]:
    before = {child.pid for child in _descendants()}
    yield
    left = [c for c in _descendants() if c.pid not in before and c.is_running()]
    zombies = [c for c in left if c.status() == psutil.STATUS_ZOMBIE]
    assert not left, f"children left behind: {left} (zombies: {zombies})"


@pytest.fixture(autouse=True, scope="session")
def odd_errors() -> Iterator[list[str]]:
    """The errors made by nodeagent whose class does not fit the kind of their reason. Those of a literal reason are
    checked in ``tests/test_errors.py``."""
    found: list[str] = []
    original = AgentError.__init__

    def checked(self: AgentError, *args: object, **kwargs: object) -> None:
        original(self, *args, **kwargs)  # type: ignore[arg-type]  # whatever was given
        frame = sys._getframe(1)
        while frame.f_code.co_name == "__init__" and frame.f_back is not None:
            frame = frame.f_back
        if reason_of(self.reason).kind not in self.kinds and frame.f_code.co_filename.startswith(PRODUCT):
            found.append(f"{frame.f_code.co_filename}:{frame.f_lineno}: {type(self).__name__} with {self.reason}")

    AgentError.__init__ = checked  # type: ignore[method-assign]
    yield found
    AgentError.__init__ = original  # type: ignore[method-assign]


@pytest.fixture(autouse=True)
def fitting_errors(odd_errors: list[str]) -> Iterator[None]:
    yield
    wrong = odd_errors.copy()
    odd_errors.clear()
    assert not wrong, "an error whose class does not fit its reason"


@pytest.fixture(autouse=True, scope="session")
def odd_answers() -> Iterator[list[str]]:
    """What is wrong with the JSON that commands printed, by its schema: answers and errors."""
    found: list[str] = []
    line, error_to_dict = _io._line, _io._error_to_dict

    def checked_line(answer: Mapping[str, Any]) -> str:
        # A MachineConfig has no schema of nodeagent, and is printed as it is.
        found.extend(filter(None, [_schemas.check(answer)] if "schema" in answer else []))
        return line(answer)

    def checked_error(error: AgentError, words: Sequence[str]) -> dict[str, Any]:
        data = error_to_dict(error, words)
        found.extend(filter(None, [_schemas.check(data)]))
        return data

    _io._line, _io._error_to_dict = checked_line, checked_error
    yield found
    _io._line, _io._error_to_dict = line, error_to_dict


@pytest.fixture(autouse=True)
def fitting_answers(odd_answers: list[str]) -> Iterator[None]:
    yield
    wrong = odd_answers.copy()
    odd_answers.clear()
    assert not wrong, f"an answer that does not fit its schema: {wrong}"


def _descendants() -> list[psutil.Process]:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return []  # none, as nearly always: psutil would look at every process of the machine to say so
    return psutil.Process().children(recursive=True)
