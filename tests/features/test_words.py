# SPDX-License-Identifier: Apache-2.0
"""The words of each feature are recorded, so that it is known what names it when it is removed."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import nodeagent
from nodeagent import features
from nodeagent.door import Door
from nodeagent.settings.schema import part_keys
from tests.core.test_hints import used_in
from tests.features.test_doors import ALL
from tests.packaging.test_manual import COMMANDS
from tests.support.golden import UPDATE, read, write
from tests.support.removed import RECORD
from tests.test_errors import caught_below, classes_of_errors

PACKAGE: Final = Path(nodeagent.__file__).parent
sys.path.insert(0, str(PACKAGE.parent / "docs"))
findings = importlib.import_module("findings")
EVERYWHERE: Final = {"--json", "-h", "--help"}


@ALL
def test_the_words_are_recorded(name: str, door: Door) -> None:
    text = "".join(f"{kind} {word}\n" for kind, word in sorted(set(words_of(name, door))))
    if os.environ.get(UPDATE):
        write(RECORD, {**read(RECORD), name: text})
    assert read(RECORD).get(name) == text, "make golden records the words of the features"


def words_of(name: str, door: Door) -> Iterator[tuple[str, str]]:
    """Yield the kinds and the words."""
    for part in door.settings:
        yield from (("setting", key) for key in part_keys(part))
    yield from (("reason", reason) for reason in door.reasons or ())
    for view in door.status:
        yield "status", view.key
        yield from (("metric", family.name) for family in (*view.families, *view.counter_families))
    yield from _of_commands(name)
    yield from (
        ("use", word)
        for word in used_in((PACKAGE / "features" / name).rglob("*.py")) - _used_by_the_base()
        if word.startswith("Reason.")
    )
    yield from (("error", error) for error in caught_below(f"nodeagent.features.{name}") & _errors())
    yield from (("finding", finding) for finding in _findings(f"tests/features/{name}/"))


def _of_commands(name: str) -> Iterator[tuple[str, str]]:
    package = importlib.import_module(f"nodeagent.features.{name}")
    yield from (("option", option.flag) for option in getattr(package, "OPTIONS", ()))
    for command in features.commands(name):
        yield "command", command.words
        for words, parser in COMMANDS:
            if f"{words} ".startswith(f"{command.words} "):
                options = {option for action in parser._actions for option in action.option_strings}
                yield from (("option", option) for option in options - EVERYWHERE)


@cache
def _used_by_the_base() -> set[str]:
    return used_in(path for path in PACKAGE.rglob("*.py") if "features" not in path.parts)


@cache
def _errors() -> set[str]:
    """Return the classes of errors that only features catch."""
    return classes_of_errors() - caught_below("nodeagent", but="nodeagent.features.")


def _findings(folder: str) -> Iterator[str]:
    """Yield the findings with a test in this folder and none outside of the features."""
    for name, tests in _tests_of_findings().items():
        if all(test.startswith("tests/features/") for test in tests) and any(test.startswith(folder) for test in tests):
            yield name


@cache
def _tests_of_findings() -> Mapping[str, set[str]]:
    found: dict[str, set[str]] = {}
    for finding in findings.findings():
        for name in findings.names_of(finding.name):
            found.setdefault(name, set()).update(finding.tests)
    return found
