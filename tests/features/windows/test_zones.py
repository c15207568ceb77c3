# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from nodeagent.errors import InvalidInput
from nodeagent.features.windows.decide.freeze import Frozen
from nodeagent.features.windows.decide.openings import Openings
from nodeagent.features.windows.zones import load_zone, openings_of, zone_name

AT = datetime(2026, 7, 1, 12, tzinfo=UTC)


def test_by_name() -> None:
    assert AT.astimezone(load_zone("Europe/Prague")).hour == 14


@pytest.mark.parametrize("name", ["Europe/Nowhere", "", "../../etc/passwd", "/etc/passwd"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_zone(name)
    assert caught.value.reason == "TimeZoneUnknown"


def test_that_of_the_host(tmp_path: Path) -> None:
    assert AT.astimezone(load_zone("localtime", tmp_path / "missing")).hour == 12
    (tmp_path / "localtime").symlink_to("/usr/share/zoneinfo/Asia/Tokyo")
    assert AT.astimezone(load_zone("localtime", tmp_path / "localtime")).hour == 21
    (tmp_path / "broken").write_text("x")
    with pytest.raises(InvalidInput):
        load_zone("localtime", tmp_path / "broken")


@pytest.mark.parametrize(
    ("name", "zone"),
    [("Europe/Pargue", "Europe/Prague"), ("prague", "Europe/Prague"), ("europe/berlin", "Europe/Berlin")],
)
def test_an_unknown_zone_names_near_ones(name: str, zone: str) -> None:
    with pytest.raises(InvalidInput, match=f"did you mean (.* or )?{zone}"):
        load_zone(name)


def test_the_name_of_the_host_s_zone(tmp_path: Path) -> None:
    link = tmp_path / "localtime"
    assert (zone_name("UTC"), zone_name("localtime", link)) == ("UTC", "UTC of this host")
    link.symlink_to("/usr/share/zoneinfo/Asia/Tokyo")
    assert zone_name("localtime", link) == "Asia/Tokyo of this host"
    link.unlink()
    link.write_bytes(b"TZif")
    assert zone_name("localtime", link) == "of this host"


def test_windows_and_freezes() -> None:
    assert openings_of((), (), "localtime") == Openings(None)
    found = openings_of(("sat,sun 22:30 120", "05:00 60"), ("2026-07-05",), "Europe/Prague")
    assert found.windows is not None
    assert found.windows.is_open(datetime(2026, 7, 4, 21, tzinfo=UTC))  # Saturday, 23:00 there
    assert not found.windows.is_open(datetime(2026, 7, 3, 21, tzinfo=UTC))
    assert found.windows.is_open(datetime(2026, 7, 3, 3, 30, tzinfo=UTC))
    assert found.freezes == (Frozen(datetime(2026, 7, 4, 22, tzinfo=UTC), datetime(2026, 7, 5, 22, tzinfo=UTC)),)
    with pytest.raises(InvalidInput):
        openings_of((), (), "Europe/Nowhere")


@pytest.mark.parametrize(
    ("windows", "freezes", "message"),
    [
        (("nights = 22:30 60", "nights = 02:00 60"), (), "windows.open: two windows have the name nights"),
        ((), ("2027-02-29",), "windows.freeze: '2027-02-29' has a date that does not exist"),
        ((), ("2027-02-02..2027-02-01",), "windows.freeze: '2027-02-02..2027-02-01' ends before it begins"),
    ],
)
def test_what_the_form_alone_does_not_show(windows: list[str], freezes: list[str], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        openings_of(windows, freezes, "UTC")
    assert (caught.value.reason, caught.value.message) == ("SettingsInvalid", message)
    assert [problem.path for problem in caught.value.problems] == [message.partition(":")[0]]
