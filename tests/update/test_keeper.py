# SPDX-License-Identifier: Apache-2.0
"""The record is changed and saved in one place each."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PRODUCT = Path(__file__).parents[2] / "nodeagent"
SAVES = {"save", "begin", "promote", "close_update", "end_trail"}


def _writers() -> dict[str, set[str]]:
    """Return the modules that assign a record, and those that save one, below the adapters."""
    found: dict[str, set[str]] = {"assigns": set(), "saves": set()}
    for folder in ("update", "agent"):
        for path in (PRODUCT / folder).rglob("*.py"):
            name = str(path.relative_to(PRODUCT))
            for node in ast.walk(ast.parse(path.read_text())):
                match node:
                    case ast.Assign(targets=[ast.Attribute(attr="record", value=value)]):
                        if "waits" not in ast.unparse(value):
                            found["assigns"].add(name)
                    case ast.Call(func=ast.Attribute(attr=attr, value=value)) if attr in SAVES:
                        if ast.unparse(value).endswith("store"):
                            found["saves"].add(name)
    return found


@pytest.mark.parametrize(
    ("what", "modules"),
    [("assigns", {"update/run.py"}), ("saves", {"update/run.py", "update/keeper.py"})],
)
def test_only_the_update_under_way_and_the_keeper_write_the_record(what: str, modules: set[str]) -> None:
    assert _writers()[what] == modules
