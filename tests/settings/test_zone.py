# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from nodeagent.errors import InvalidInput
from nodeagent.settings.check import load_zone

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
