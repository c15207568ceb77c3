# SPDX-License-Identifier: Apache-2.0
"""How long an update takes, by the history of the host."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nodeagent.features.windows.decide.estimate import (
    EXPECTED,
    LONGEST,
    Estimate,
    Work,
    disruptive_seconds,
    estimate,
    in_words,
    work_of,
)
from nodeagent.update.history.trail import Boot, Span, Trail, trail_to_dict
from nodeagent.update.ports.store import HistoryEntry


def trail(*phases: tuple[str, float], end: float, boots: tuple[Boot, ...] = ()) -> Trail:
    """``phases`` have their begin, in seconds of the first boot, which is alive until ``end``."""
    spans = tuple(Span(name, "", 0, at) for name, at in phases)
    return Trail((Boot("b0", 0, end, 1e9), *boots), spans)


def entry(seconds: float, disruption: str = "restart", outcome: str = "done", **plan: Any) -> HistoryEntry:
    course = trail(("Leasing", 0), ("Writing", 100), end=100 + seconds)
    times = ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z")
    return HistoryEntry("u", "a", "b", *times, outcome, disruption, trail=trail_to_dict(course), plan=plan)


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


@pytest.mark.parametrize(
    ("course", "seconds"),
    [
        (trail(("Leasing", 0), ("Writing", 3600), ("Acting", 3610), end=3700), 100),
        (trail(("Staging", 0), ("Leasing", 900), ("Draining", 1000), ("Releasing", 1500), end=1510), 510),
        # A drain that was given up: the last attempt counts.
        (trail(("Leasing", 0), ("Draining", 10), ("Leasing", 100), ("Draining", 200), end=260), 60),
        # Thirty seconds until the host is up, and twenty in the second boot.
        (trail(("Leasing", 0), ("Rebooting", 50), end=60, boots=(Boot("b1", 5, 25, 1e9 + 85),)), 10 + 30 + 20),
        # A clock that went back hides the time of the boot.
        (trail(("Leasing", 0), ("Rebooting", 50), end=60, boots=(Boot("b1", 5, 25, 1e9 - 85),)), 10 + 20),
        (trail(("Leasing", 0), end=60), None),
        (trail(("Rebooting", 0), end=60), None),
        (Trail(), None),
    ],
)
def test_the_wait_for_a_turn_is_no_part(course: Trail, seconds: float | None) -> None:
    assert disruptive_seconds(course) == seconds


def test_the_slowest_of_the_last_ones_and_a_margin() -> None:
    lengths = [60, 840, 120, 60, 60, 3000]
    assert estimate([entry(each) for each in lengths], Work.RESTART) == Estimate(
        Work.RESTART, minutes(17.5), minutes(14), 5
    )
    # At least a minute more.
    assert estimate([entry(60)], Work.RESTART).needed == minutes(2)
    assert estimate([entry(1e9)], Work.RESTART).slowest == LONGEST


def test_only_the_same_work_and_a_good_end_count() -> None:
    entries = [
        entry(60, "reload"),
        entry(120, "none"),
        entry(600, "drain"),
        entry(1200, "reboot", changes=[{"domain": "file"}]),
        entry(1800, "reboot", changes=[{"domain": "file"}, {"domain": "osImageURL"}]),
        entry(2400, "reboot", "done-after-fallback", os="a new version"),
        entry(9000, "reboot", "reverted"),
        entry(9000, "drain", "degraded"),
    ]
    slowest = {work: estimate(entries, work).slowest for work in Work}
    assert slowest == {
        Work.RESTART: minutes(2),
        Work.DRAIN: minutes(10),
        Work.REBOOT: minutes(20),
        Work.OS: minutes(40),
    }


def test_without_a_similar_update_there_is_a_default() -> None:
    unknown = HistoryEntry("u", "a", "b", "", "", "done", "drain")
    for entries in ([], [unknown], [entry(60)]):
        found = estimate(entries, Work.DRAIN)
        assert (found.needed, found.updates) == (EXPECTED[Work.DRAIN], 0)
    # Rows of an older version, or of a file that was damaged.
    odd = HistoryEntry("u", "a", "b", "", "", "done", "drain", plan={"changes": [1, None]}, trail={"phases": "x"})
    assert estimate([odd], Work.DRAIN).updates == 0
    assert list(EXPECTED.values()) == sorted(EXPECTED.values())


def test_the_work_of_a_plan() -> None:
    for word, work in (("none", "restart"), ("reload", "restart"), ("restart", "restart"), ("drain", "drain")):
        assert work_of(word, changes_os=False) == work
    assert (work_of("reboot", changes_os=False), work_of("reboot", changes_os=True)) == ("reboot", "os")


def test_words() -> None:
    for length, words in ((0.1, "1 min"), (14, "14 min"), (59.5, "1 h"), (200, "3 h 20 min")):
        assert in_words(minutes(length)) == words
