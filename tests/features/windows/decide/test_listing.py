# SPDX-License-Identifier: Apache-2.0
"""The answer of ``nodeagent windows``."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any

from nodeagent.cli._schemas import check
from nodeagent.features.windows.decide.estimate import EXPECTED, Estimate, Work
from nodeagent.features.windows.decide.freeze import Frozen
from nodeagent.features.windows.decide.listing import SCHEMA, listing
from nodeagent.features.windows.decide.openings import Openings
from nodeagent.features.windows.decide.schedule import Schedule
from nodeagent.features.windows.decide.turn import Terms, turn
from nodeagent.features.windows.decide.window import parse_windows
from tests.features.windows.decide.zones import utc

ESTIMATES = {work: Estimate(work, length, length) for work, length in EXPECTED.items()}


def listed(openings: Openings, now: str, terms: Terms | None = None, count: int = 3) -> dict[str, Any]:
    answer = listing(openings, terms or Terms(), ESTIMATES, utc(now), count)
    assert check({"schema": SCHEMA, "source": "daemon", "zone": "UTC", **answer}) == ""
    return answer


def test_the_next_windows_without_the_freezes() -> None:
    freeze = Frozen(utc("2026-01-06T00:00"), utc("2026-01-08T00:00"), "audit")
    openings = Openings(Schedule(parse_windows(["02:00 60"]), UTC), (freeze,))
    found = listed(openings, "2026-01-05T02:30")
    days = ["05", "08", "09"]
    assert [each["begins"] for each in found["windows"]] == [f"2026-01-{day}T02:00:00Z" for day in days]
    assert (found["open"], found["frozen"]) == (True, None)
    assert found["freezes"] == [{"name": "audit", "begins": "2026-01-06T00:00:00Z", "ends": "2026-01-08T00:00:00Z"}]
    found = listed(openings, "2026-01-06T02:30", count=1)
    assert (found["open"], found["frozen"]["name"], len(found["windows"])) == (False, "audit", 1)
    assert listed(openings, "2026-01-08T02:30")["freezes"] == []
    assert not listed(openings, "2026-01-05T03:30")["open"]


def test_the_times_of_this_host_are_those_of_its_turns() -> None:
    openings = Openings(Schedule(parse_windows(["sat 02:00 40", "1st sun 02:00 240"]), UTC))
    terms, now = Terms(timedelta(minutes=60), 0.5, end_inside=True), "2026-01-05T00:00"
    found = listed(openings, now, terms, count=20)
    for work, estimate in ESTIMATES.items():
        times = [each["host_begins"][work] for each in found["windows"] if each["host_begins"][work]]
        expected = turn(openings, terms, estimate.needed, utc(now)).begins
        assert expected is not None
        assert times[0] == f"{expected:%Y-%m-%dT%H:%M:%SZ}"
    # No Saturday is long enough for another OS.
    assert found["windows"][0]["host_begins"]["os"] == ""
    assert found["windows"][0]["host_begins"]["restart"] == "2026-01-10T02:15:00Z"
    assert found["estimates"]["os"] == {"seconds": 2700.0, "slowest": 2700.0, "updates": 0, "fits": True}


def test_always_and_never() -> None:
    found = listed(Openings(None), "2026-01-05T00:00")
    nothing = dict.fromkeys(Work, "")
    assert (found["open"], found["windows"]) == (True, [{"begins": "", "ends": "", "host_begins": nothing}])
    found = listed(Openings(Schedule((), UTC)), "2026-01-05T00:00")
    assert (found["open"], found["windows"]) == (False, [])
