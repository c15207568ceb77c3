# SPDX-License-Identifier: Apache-2.0
"""The settings and the option of ``nodeagent apply``."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nodeagent.cli._schemas import check
from nodeagent.door import Base
from nodeagent.errors import InvalidInput, Terminal
from nodeagent.features.windows.decide.estimate import Work
from nodeagent.features.windows.decide.turn import Obstacle
from nodeagent.features.windows.door import DOOR
from nodeagent.features.windows.settings import WindowSettings
from nodeagent.features.windows.times import HostTimes
from nodeagent.reasons import Reason
from nodeagent.settings.check import Value, check_values
from nodeagent.settings.consistency import check_consistency
from nodeagent.settings.load import Loaded, load
from nodeagent.settings.schema import Settings, flatten
from nodeagent.update.history.trail import Boot, Span, Trail, trail_to_dict
from nodeagent.update.ports.store import HistoryEntry
from tests.world import FakeClock, FakeStore, World


def loaded(directory: Path, text: str) -> Loaded:
    (directory / "50-x.yaml").write_text(text)
    return load([directory])


@pytest.mark.parametrize(
    ("text", "reason", "words"),
    [
        ("windows: {open: ['night = 01:00 5', 'night = 02:00 5']}\n", "SettingsInvalid", "windows.open"),
        ("windows: {zone: Nowhere/City}\n", "TimeZoneUnknown", "50-x.yaml:1: windows.zone: 'Nowhere/City' is not"),
    ],
)
def test_what_only_the_host_can_tell(tmp_path: Path, text: str, reason: str, words: str) -> None:
    found = loaded(tmp_path, text)
    with pytest.raises(InvalidInput, match=words) as raised:
        check_consistency(found.settings, found.origins)
    assert raised.value.reason == reason
    assert [problem.path for problem in raised.value.problems] == [f"{tmp_path}/50-x.yaml:1"]


@pytest.mark.finding(
    "commands: place of an unknown time zone",
    "An unknown time zone is refused with the file and the line of its key, and with similar names.",
)
def test_an_unknown_zone_has_the_line_of_its_key(tmp_path: Path) -> None:
    found = loaded(tmp_path, "windows:\n  open: ['02:00 60']\n  zone: Prague\n")
    with pytest.raises(InvalidInput) as raised:
        check_consistency(found.settings, found.origins)
    (problem,) = raised.value.problems
    message = "windows.zone: 'Prague' is not a time zone of this host; did you mean Europe/Prague?"
    assert (problem.path, problem.message) == (f"{tmp_path}/50-x.yaml:3", message)


def test_a_wrong_window(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as raised:
        loaded(tmp_path, "windows: {open: ['sat 02:00 10', 'sat 25:00 10']}")
    (problem,) = raised.value.problems
    assert (problem.path, problem.message) == (
        f"{tmp_path}/50-x.yaml:1",
        'windows.open must be a list, each "DAYS HH:MM MINUTES", as in "sat,sun 02:00 120" or "2nd tue 02:00 120"; '
        'without days for every day; "NAME = " may precede it; '
        "wrong is 'sat 25:00 10'",
    )


def test_windows_are_lists_in_and_out() -> None:
    settings = check_values({"windows.open": Value(["sat,sun 02:00 120", "late-1 = 22:30 60"], "x")})
    assert settings.of(WindowSettings).open == ("sat,sun 02:00 120", "late-1 = 22:30 60")
    assert flatten(settings)["windows.open"] == ["sat,sun 02:00 120", "late-1 = 22:30 60"]


async def test_the_times_of_the_settings() -> None:
    world = World()
    times = HostTimes(WindowSettings(), FakeStore(world), FakeClock(world), lambda: "a" * 32)
    assert (await times.openings(), times.terms.spread, times.terms.end_inside) == (None, timedelta(0), False)
    times.use(WindowSettings(("sat 02:00 60",), ("2026-12-24",), 30, True, "Europe/Prague"))
    found = await times.openings()
    assert found is not None
    assert found.windows is not None
    assert (found.windows.zone, [window.day for window in found.windows.windows]) == (await times.zone(), [5])
    assert [freeze.begins.hour for freeze in found.freezes] == [23]
    assert (times.terms.spread, times.terms.end_inside) == (timedelta(minutes=30), True)
    assert 0 < times.terms.share < 1


async def test_the_next_update_is_estimated_from_the_history() -> None:
    world = World()
    times = HostTimes(WindowSettings(("02:00 60",)), FakeStore(world), FakeClock(world), lambda: "a" * 32)
    assert (await times.estimate(Work.DRAIN)).updates == 0
    course = Trail((Boot("b", 0, 610, 1e9),), (Span("Leasing", "", 0, 0), Span("Draining", "", 0, 10)))
    world.history.append(HistoryEntry("u", "a", "b", "", "", "done", "drain", trail=trail_to_dict(course)))
    estimate = await times.estimate(Work.DRAIN)
    assert (estimate.slowest, estimate.updates) == (timedelta(minutes=10), 1)
    openings = await times.openings()
    assert openings is not None
    turn = await times.turn(openings, estimate.needed, times.now())
    assert (turn.begins, turn.obstacle) == (datetime(2026, 1, 1, 2, tzinfo=UTC), Obstacle.CLOSED)


async def test_the_answer_of_the_daemon_about_its_windows() -> None:
    world = World()
    given = {field.name: None for field in fields(Base)}
    given |= {"store": FakeStore(world), "clock": FakeClock(world), "host_id": lambda: "a" * 32}
    assert DOOR.open is not None
    feature = DOOR.open(Base(**{**given, "settings": Settings()}))  # type: ignore[arg-type]
    answer = json.loads(await feature.calls["Windows"]("", (5,)))
    assert (check(answer), answer["open"], answer["source"]) == ("", True, "daemon")
    feature.use(Settings(parts=(WindowSettings(("02:00 60",)),)))
    for count, expected in ((5, 5), (0, 1), (2**32 - 1, 100)):
        answer = json.loads(await feature.calls["Windows"]("", (count,)))
        assert (check(answer), len(answer["windows"])) == ("", expected)


async def test_a_host_without_an_id_is_the_first() -> None:
    def no_id() -> str:
        raise Terminal("no machine id", reason=Reason.NO_MACHINE_ID)

    world = World()
    assert HostTimes(WindowSettings(), FakeStore(world), FakeClock(world), no_id).terms.share == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "windows: {open: ['sat 02:00 60', 'sun 02:00 120'], spread: 121}",
            "windows.spread (121) is more than the 120 minutes of the longest window",
        ),
        ("windows: {open: ['last sun 02:00 60'], spread: 90}", "windows.spread (90) is more than the 60 minutes"),
        (
            "windows: {freeze: ['2026-01-01..2026-12-01', '2026-12-02..2027-07-01']}",
            "no update could begin for more than 400 days from 2026-01-01",
        ),
        (
            "windows: {open: ['31st 02:00 60'], freeze: ['2026-01-01..2026-12-31', '2027-01-30..2027-02-02']}",
            "no update could begin for more than 400 days",
        ),
    ],
)
def test_settings_that_contradict_each_other(tmp_path: Path, text: str, message: str) -> None:
    found = loaded(tmp_path, text)
    with pytest.raises(InvalidInput) as raised:
        check_consistency(found.settings, found.origins)
    assert raised.value.reason == "SettingsInvalid"
    (problem,) = raised.value.problems
    assert problem.path == f"{tmp_path}/50-x.yaml:1"
    assert message in problem.message


@pytest.mark.parametrize(
    "text",
    [
        "windows: {open: ['sat 22:00 120', 'sun 00:00 120'], spread: 240}",
        "windows: {open: ['00:00 1440'], spread: 9999}",
        "windows: {spread: 600}",
        "windows: {freeze: ['2026-01-01..2027-01-01'], open: ['02:00 60']}",
        "windows: {freeze: ['2026-12-24', 'expo = 2026-11-02T06:00..2026-11-06T18:00']}",
    ],
)
def test_settings_that_agree(tmp_path: Path, text: str) -> None:
    found = loaded(tmp_path, text)
    check_consistency(found.settings, found.origins)


@pytest.mark.parametrize(
    "value",
    [
        *("2026-13-01", "2026-12-32", "1999-01-01", "2026-12-20..", "..2026-12-20", "2026-12-20...2026-12-21"),
        *("2026-12-20T24:00", "2026-12-20 06:00", "2026-12-20Z", "xmas=2026-12-20", "X = 2026-12-20", ""),
        *("12-20..01-03", "2026-W51", "٢٠٢٦-12-20"),
    ],
)
def test_what_is_no_freeze(value: str) -> None:
    with pytest.raises(InvalidInput, match=r"windows\.freeze must be a list"):
        check_values({"windows.freeze": Value([value], "x")})


@pytest.mark.parametrize(
    "value",
    [
        *("2nd tue 02:00 60", "last sun 02:00 60", "1st,3rd mon,tue 02:00 60", "1st weekday 02:00 60"),
        *("15th 02:00 60", "1st,last 02:00 60", "patch-day = 2nd tue 02:00 180", "31st 02:00 60"),
    ],
)
def test_windows_of_a_month(value: str) -> None:
    settings = check_values({"windows.open": Value([value], "x")}).of(WindowSettings)
    settings.check_host()


@pytest.mark.parametrize(
    "value",
    [
        *("6th tue 02:00 60", "0th tue 02:00 60", "32nd 02:00 60", "weekday 02:00 60", "tue 2nd 02:00 60"),
        *("2 tue 02:00 60", "2nd tue,weekday 02:00 60", "last,sun 02:00 60", "2nd tue 02:00 3h"),
    ],
)
def test_what_is_no_window_of_a_month(value: str) -> None:
    with pytest.raises(InvalidInput, match=r"windows\.open must be a list"):
        check_values({"windows.open": Value([value], "x")})


@pytest.mark.parametrize(
    "options",
    [
        {"any_time": "no"},
        {"not_before": "soon"},
        {"not_before": "2026-11-24T02:00"},
        {"window": "sat"},
        {"window": "sat 02:00 x"},
    ],
)
def test_a_start_that_cannot_be_read(options: dict[str, str]) -> None:
    assert DOOR.check_request is not None
    DOOR.check_request({"not_before": "2026-11-24T02:00:00Z", "window": "sat 02:00 60", "any_time": "yes"})
    with pytest.raises(InvalidInput) as raised:
        DOOR.check_request(options)
    assert raised.value.reason == "BadTime"
