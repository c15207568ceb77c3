# SPDX-License-Identifier: Apache-2.0
"""``systemd.units``."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.core.config.machineconfig import UnitEntry
from tests.core.config.documents import (
    UNITS,
    Doc,
    parsed,
    problems,
    with_units,
)

UNIT_FORMS: list[tuple[Doc, UnitEntry]] = [
    ({}, UnitEntry("a.service")),
    ({"contents": "[Unit]\n"}, UnitEntry("a.service", "[Unit]\n")),
    ({"contents": ""}, UnitEntry("a.service")),
    ({"enabled": True}, UnitEntry("a.service", enabled=True)),
    ({"enabled": False}, UnitEntry("a.service", enabled=False)),
    ({"enabled": None, "mask": None, "contents": None, "dropins": None}, UnitEntry("a.service")),
    ({"mask": True, "contents": "[Unit]"}, UnitEntry("a.service", "[Unit]", mask=True)),
    ({"mask": False}, UnitEntry("a.service")),
    ({"dropins": []}, UnitEntry("a.service")),
    ({"dropins": [{"name": "a.conf", "contents": ""}, {"name": "b.conf"}]}, UnitEntry("a.service")),
    ({"dropins": [{"name": "a.conf", "contents": "[Unit]"}]}, UnitEntry("a.service", dropins={"a.conf": "[Unit]"})),
]


@pytest.mark.parametrize(("fields", "unit"), UNIT_FORMS)
def test_unit(fields: Doc, unit: UnitEntry) -> None:
    assert parsed(with_units({"name": "a.service", **fields})).units == {"a.service": unit}


WRONG_UNITS: dict[str, tuple[Any, str, str]] = {
    "no name": ({}, ".name", "must not be empty"),
    "bad name": ({"name": "a/b.service"}, ".name", "must consist of"),
    "no type": ({"name": "a"}, ".name", "type of a unit"),
    "newline": ({"name": "a\n.service"}, ".name", "must consist of"),
    "contents of a wrong type": ({"name": "a.service", "contents": ["x"]}, ".contents", "must be a string"),
    "NUL in contents": ({"name": "a.service", "contents": "a\0"}, ".contents", "NUL"),
    "enabled as string": ({"name": "a.service", "enabled": "true"}, ".enabled", "must be true or false"),
    "mask as number": ({"name": "a.service", "mask": 1}, ".mask", "must be true or false"),
    "enable of Ignition 2": ({"name": "a.service", "enable": True}, "", "it is of Ignition 2, write enabled"),
    "unknown key": ({"name": "a.service", "masked": True}, "", "unknown key 'masked'"),
    "dropins as object": ({"name": "a.service", "dropins": {"a": 1}}, ".dropins", "must be a list"),
    "bad drop-in": ({"name": "a.service", "dropins": [{"name": "a"}]}, ".dropins[0].name", "must end in .conf"),
    "drop-in without name": ({"name": "a.service", "dropins": [{}]}, ".dropins[0].name", "must not be empty"),
    "NUL in a drop-in": (
        {"name": "a.service", "dropins": [{"name": "a.conf", "contents": "\0"}]}, ".dropins[0].contents", "NUL",
    ),
    "unknown key of a drop-in": (
        {"name": "a.service", "dropins": [{"name": "a.conf", "content": ""}]}, ".dropins[0]", "unknown key 'content'",
    ),
    "masking ourselves": ({"name": "nodeagent.service", "mask": True}, ".name", "cannot switch itself off"),
    "disabling ourselves": ({"name": "nodeagent.service", "enabled": False}, ".name", "cannot switch itself off"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_UNITS)
def test_unit_is_refused(case: str) -> None:
    unit, path, message = WRONG_UNITS[case]
    found = [p for p in problems(with_units(unit)) if p.path == f"{UNITS}[0]{path}"]
    assert any(message in problem.message for problem in found)
