# SPDX-License-Identifier: Apache-2.0
"""The JSON of every command is declared, and every key has a description.

Each answer of a test of the command line is compared with its schema as well: ``fitting_answers`` in
``tests/support/guards.py``, and ``TestHost.run`` on the hosts of ring 2.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.cli import _schemas
from nodeagent.cli.main import build_parser, main
from tests.support.golden import check_keys

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))
answers = importlib.import_module("answers")

pytestmark = pytest.mark.finding(
    "users: JSON schemas",
    "Every key of every answer of a command is in a JSON Schema of the package, with its meaning.",
)

COMMANDS: dict[str, argparse.ArgumentParser] = dict(answers.leaves("nodeagent", build_parser()))
# One prints a MachineConfig, the other what journald has.
FOREIGN = {"nodeagent render", "nodeagent logs"}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_json_or_the_reason_why_not(name: str) -> None:
    about = answers.help_of_json(COMMANDS[name])
    assert (about is None) == ("There is no --json: " in (COMMANDS[name].description or ""))
    if about is not None and name not in FOREIGN:
        assert about.partition("(")[2].rstrip(")") in _schemas.kinds()


def test_each_schema_is_that_of_a_command_or_of_errors() -> None:
    assert set(answers.commands()) == set(_schemas.kinds()) - {"nodeagent/error/v1"}


@pytest.mark.parametrize("name", _schemas.documents())
def test_every_key_has_a_description(name: str) -> None:
    document = _schemas.documents()[name]
    assert document["title"] == f"nodeagent/{name.removesuffix('-v1.json')}/v1"
    rows = list(answers.rows(document))
    assert rows
    assert [key for key, _, about in rows if not about] == []


def _values(document: object) -> Iterator[Any]:
    yield document
    parts = document.values() if isinstance(document, dict) else document if isinstance(document, list) else ()
    for part in parts:
        yield from _values(part)


@pytest.mark.parametrize("name", _schemas.documents())
def test_a_client_may_meet_further_keys(name: str) -> None:
    objects = [value for value in _values(_schemas.documents()[name]) if isinstance(value, dict)]
    assert [value for value in objects if value.get("additionalProperties") is False] == []


@pytest.mark.parametrize("schema", _schemas.base_answers())
def test_the_keys_that_scripts_read_are_recorded(schema: str) -> None:
    """Declaration, schemas and reference follow from each other, so a key could go unnoticed."""
    check_keys(_schemas.document(schema, _schemas.base_answers()[schema]))


def test_a_key_that_is_not_declared_is_found() -> None:
    answer: dict[str, Any] = {"schema": "nodeagent/lease/v1", "lease": None}
    assert _schemas.check(answer) == ""
    assert "unknown field" in _schemas.check({**answer, "more": 1})
    assert "missing required field" in _schemas.check({"schema": "nodeagent/lease/v1"})
    assert "nodeagent/none/v1" in _schemas.check({"schema": "nodeagent/none/v1"})


def test_the_package_has_each_schema(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "packaging/schemas.py", tmp_path], check=True, timeout=60)
    written = {path.name: json.loads(path.read_text()) for path in (tmp_path / _schemas.DIRECTORY).iterdir()}
    assert written == _schemas.documents()


@pytest.mark.parametrize("words", [["daemon"], ["boot-complete"], ["report", "--html", "-"], ["etcd", "prepare"]])
def test_a_command_without_json_says_why(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--json"]) == 2
    hint = json.loads(capsys.readouterr().err)["hint"]
    assert hint.startswith("there is no --json: ")
    assert "did you mean" not in hint
