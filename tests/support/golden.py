# SPDX-License-Identifier: Apache-2.0
"""Golden texts: the sentences of one surface (status, plan, journal, ...) are in one file below ``tests/golden``, those
of a feature in the directory ``golden`` of its tests.

Other tests assert on reasons and structure, so a change of wording changes these files only. ``make golden`` writes
them again; the difference is then reviewed with the change.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import pytest

__all__ = ["Golden", "golden"]

TESTS: Final = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS.parent / "docs"))
answers: Any = importlib.import_module("answers")
UPDATE = "NODEAGENT_UPDATE_GOLDEN"
MARK = "### "


class Golden(Protocol):
    def __call__(self, surface: str, name: str, text: str, *, feature: str = "") -> None:
        """Compare the text with the case of this name. ``feature`` is by default that of the test."""


def place_of(surface: str, feature: str) -> Path:
    """Return the file of a surface: that of the base, or of the feature of a folder."""
    return TESTS / (f"features/{feature}/golden" if feature else "golden") / f"{surface}.txt"


def check_keys(document: Mapping[str, Any], *, feature: str = "") -> None:
    """Compare the keys of a JSON Schema, and their types, with those of its file below ``golden/json``."""
    path = place_of("", feature).parent / f"json/{document['title'].split('/')[1]}-v1.json"
    declared = {key.replace("`", ""): kind.replace("`", "") for key, kind, _ in answers.rows(document)}
    if os.environ.get(UPDATE):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(declared, indent=2) + "\n", encoding="utf-8")
    recorded = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    assert declared == recorded, (
        f"{path.relative_to(TESTS.parent)}: a script that reads a key which goes, or changes its type, breaks; "
        "make golden records a new key"
    )


def feature_of(test: Path) -> str:
    """Return the folder of the feature of a test, "" for a test of the base."""
    match test.relative_to(TESTS).parts:
        case ("features", feature, _, *_):
            return feature
    return ""


def read(path: Path) -> dict[str, str]:
    """Return the texts of a file by the names of their cases."""
    cases: dict[str, str] = {}
    name = ""
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        if line.startswith(MARK):
            name = line.removeprefix(MARK)
            cases[name] = ""
        else:
            cases[name] += f"{line}\n"
    # An empty line separates the cases.
    return {name: text.removesuffix("\n") for name, text in cases.items()}


def write(path: Path, cases: dict[str, str]) -> None:
    texts = [f"{MARK}{name}\n{text}\n" for name, text in sorted(cases.items())]
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(texts), encoding="utf-8")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    def check(surface: str, name: str, text: str, *, feature: str = "") -> None:
        text = text if text.endswith("\n") else f"{text}\n"
        path = place_of(surface, feature or feature_of(request.path))
        cases = read(path)
        if os.environ.get(UPDATE):
            write(path, {**cases, name: text})
        else:
            shown = path.relative_to(TESTS.parent)
            assert text == cases.get(name), f"{shown}: {name} differs; make golden writes it again"

    return check
