# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from nodeagent.errors import InvalidInput
from nodeagent.features.windows.zones import load_zone, schedule_of, zone_name

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


def test_windows() -> None:
    assert schedule_of((), "localtime") is None
    found = schedule_of(("sat,sun 22:30 120", "05:00 60"), "Europe/Prague")
    assert found is not None
    assert found.is_open(datetime(2026, 7, 4, 21, tzinfo=UTC))  # Saturday, 23:00 there
    assert not found.is_open(datetime(2026, 7, 3, 21, tzinfo=UTC))
    assert found.is_open(datetime(2026, 7, 3, 3, 30, tzinfo=UTC))
    with pytest.raises(InvalidInput):
        schedule_of((), "Europe/Nowhere")
    with pytest.raises(InvalidInput) as twice:
        schedule_of(("nights = 22:30 60", "nights = 02:00 60"), "UTC")
    assert (twice.value.reason, twice.value.message) == (
        "SettingsInvalid",
        "windows.open: two windows have the name nights",
    )
