# SPDX-License-Identifier: Apache-2.0
"""The settings and the option of ``nodeagent apply``."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.errors import InvalidInput
from nodeagent.features.windows.door import DOOR
from nodeagent.features.windows.guard import HostTimes
from nodeagent.features.windows.settings import WindowSettings
from nodeagent.settings.check import Value, check_values
from nodeagent.settings.consistency import check_consistency
from nodeagent.settings.load import Loaded, load
from nodeagent.settings.schema import flatten


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
        'windows.open must be a list, each "DAYS HH:MM MINUTES", as in "sat,sun 02:00 120"; '
        'without days for every day; "NAME = " may precede it; '
        "wrong is 'sat 25:00 10'",
    )


def test_windows_are_lists_in_and_out() -> None:
    settings = check_values({"windows.open": Value(["sat,sun 02:00 120", "late-1 = 22:30 60"], "x")})
    assert settings.of(WindowSettings).open == ("sat,sun 02:00 120", "late-1 = 22:30 60")
    assert flatten(settings)["windows.open"] == ["sat,sun 02:00 120", "late-1 = 22:30 60"]


async def test_the_times_of_the_settings() -> None:
    times = HostTimes(WindowSettings())
    assert await times.schedule() is None
    times.use(WindowSettings(("sat 02:00 60",), "Europe/Prague"))
    found = await times.schedule()
    assert found is not None
    assert (found.zone, [window.day for window in found.windows]) == (await times.zone(), [5])


@pytest.mark.parametrize(
    "options",
    [{"not_before": "soon"}, {"not_before": "2026-11-24T02:00"}, {"window": "sat"}, {"window": "sat 02:00 x"}],
)
def test_a_start_that_cannot_be_read(options: dict[str, str]) -> None:
    assert DOOR.check_request is not None
    DOOR.check_request({"not_before": "2026-11-24T02:00:00Z", "window": "sat 02:00 60"})
    with pytest.raises(InvalidInput) as raised:
        DOOR.check_request(options)
    assert raised.value.reason == "BadTime"
