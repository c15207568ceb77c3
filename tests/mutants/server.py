# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest: first what each test reaches, then each decision with the tests that reach it.

The tests are collected once. What follows is done in forks of that process, so no decision pays for imports, and no
test sees what another one left.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

from tests.mutants import switch

SAMPLE = "NODEAGENT_MUTANTS"
"""The file with the sample; the results are written beside it."""
NEAR = 4
"""Tests of a near file for one of another file."""
PATIENCE = 20.0
"""And four times what the tests took: a fork that does not end in this time hangs."""


def pytest_configure(config: pytest.Config) -> None:
    if SAMPLE in os.environ:
        config.pluginmanager.register(Server(Path(os.environ[SAMPLE])))


class Server:
    """``sample`` has a line of JSON for each decision: its number, its nearest files, and the seconds for its tests."""

    def __init__(self, sample: Path) -> None:
        self.sample = [json.loads(line) for line in sample.read_text(encoding="utf-8").splitlines()]
        self.tests = sample.with_name("tests.jsonl")
        self.results = sample.with_name("results.jsonl")
        self.failed = False

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Leave out what only makes a failing example smaller."""
        phases = [Phase.explicit, Phase.generate]
        settings.register_profile("mutants", settings.get_profile("default"), phases=phases, database=None)
        settings.load_profile("mutants")
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        at_import = frozenset(switch.reached)
        items = {item.nodeid: item for item in session.items}
        if not self.tests.exists():
            _fork(lambda: self._reach(session.items), None)
        tests = [json.loads(line) for line in self.tests.read_text(encoding="utf-8").splitlines()]
        with self.results.open("a", encoding="utf-8") as out:
            for decision in self.sample:
                number = decision["number"]
                reaching = [test for test in tests if number in test["reached"] and test["name"] in items]
                chosen = _first(reaching, decision)
                result = "not reached"
                if chosen and number not in at_import:
                    patience = PATIENCE + 4 * sum(test["seconds"] for test in chosen)
                    result = self._try([items[test["name"]] for test in chosen], number, patience)
                counts = {"tests": len(chosen), "of": len(reaching)}
                out.write(f"{json.dumps({'number': number, 'result': result, **counts})}\n")
                out.flush()
        return True

    def _reach(self, items: Sequence[pytest.Item]) -> bool:
        """Run all tests as they are, and write what each of those that pass takes and reaches."""
        with self.tests.open("w", encoding="utf-8") as out:
            for index, item in enumerate(items):
                switch.reached.clear()
                start = time.monotonic()
                if self._passes(item, items[index + 1] if index + 1 < len(items) else None):
                    seconds = time.monotonic() - start
                    test = {"name": item.nodeid, "seconds": seconds, "reached": sorted(switch.reached)}
                    out.write(f"{json.dumps(test)}\n")
        return True

    def _passes(self, item: pytest.Item, following: pytest.Item | None) -> bool:
        self.failed = False
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return not self.failed

    def _try(self, chosen: Sequence[pytest.Item], number: int, patience: float) -> str:
        def all_pass() -> bool:
            switch.take_away(number)
            followings = [*chosen[1:], None]
            return all(self._passes(item, following) for item, following in zip(chosen, followings, strict=True))

        survived = _fork(all_pass, patience)
        if survived is None:
            return "killed (hangs)"
        return "survived" if survived else "killed"


def _first(reaching: Sequence[dict[str, Any]], decision: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tests to run, up to the seconds of the decision: a few of each file, the fastest of it first.

    Tests of one file resemble each other, and the nearest files have more turns than others.
    """
    turns: Counter[str] = Counter()
    ordered: list[tuple[int, float, dict[str, Any]]] = []
    for test in sorted(reaching, key=lambda test: test["seconds"]):
        file = test["name"].partition("::")[0]
        ordered.append((turns[file] // (NEAR if file in decision["near"] else 1), test["seconds"], test))
        turns[file] += 1
    ordered.sort(key=lambda turn: turn[:2])
    ends = accumulate(seconds for _, seconds, _ in ordered)
    return [test for (_, _, test), end in zip(ordered, ends, strict=True) if end <= decision["seconds"]]


def _fork(work: Callable[[], bool], patience: float | None) -> bool | None:
    """Return what ``work`` returns in a fork, or None if it takes longer than ``patience``."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setsid()
            code = 0 if work() else 1
        finally:
            os._exit(code)
    start = time.monotonic()
    ended, status = os.waitpid(pid, os.WNOHANG)
    while not ended and (patience is None or time.monotonic() - start < patience):
        time.sleep(0.05)
        ended, status = os.waitpid(pid, os.WNOHANG)
    end_group(pid)
    if not ended:
        os.waitpid(pid, 0)
        return None
    return os.waitstatus_to_exitcode(status) == 0


def end_group(pid: int) -> None:
    """End what a test run may have left: a bus, or a daemon."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
