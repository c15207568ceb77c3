# SPDX-License-Identifier: Apache-2.0
"""Golden texts: the sentences of one surface (status, plan, journal, ...) are in one file below ``tests/golden``, those
of a feature in the directory ``golden`` of its tests.

Other tests assert on reasons and structure, so a change of wording changes these files only. ``make golden`` writes
them again; the difference is then reviewed with the change.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Protocol

import pytest

__all__ = ["Golden", "golden"]

TESTS: Final = Path(__file__).parents[1]
UPDATE = "NODEAGENT_UPDATE_GOLDEN"
MARK = "### "


class Golden(Protocol):
    def __call__(self, surface: str, name: str, text: str, *, feature: str = "") -> None:
        """Compare the text with the case of this name. ``feature`` is by default that of the test."""


def place_of(surface: str, feature: str) -> Path:
    """Return the file of a surface: that of the base, or of the feature of a folder."""
    return TESTS / (f"features/{feature}/golden" if feature else "golden") / f"{surface}.txt"


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
