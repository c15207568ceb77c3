# SPDX-License-Identifier: Apache-2.0
"""Golden texts: the sentences of one surface (status, plan, journal, ...) are in one file below ``tests/golden``.

Other tests assert on reasons and structure, so a change of wording changes these files only. ``make golden`` writes
them again; the difference is then reviewed with the change.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

__all__ = ["Golden", "golden"]

DIRECTORY = Path(__file__).parents[1] / "golden"
UPDATE = "NODEAGENT_UPDATE_GOLDEN"
MARK = "### "

# Called with the surface, the name of the case, and the text.
Golden = Callable[[str, str, str], None]


def read(surface: str) -> dict[str, str]:
    """Return the texts of a surface by the names of their cases."""
    path = DIRECTORY / f"{surface}.txt"
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


def write(surface: str, cases: dict[str, str]) -> None:
    texts = [f"{MARK}{name}\n{text}\n" for name, text in sorted(cases.items())]
    (DIRECTORY / f"{surface}.txt").write_text("".join(texts), encoding="utf-8")


@pytest.fixture
def golden() -> Golden:
    def check(surface: str, name: str, text: str) -> None:
        text = text if text.endswith("\n") else f"{text}\n"
        cases = read(surface)
        if os.environ.get(UPDATE):
            write(surface, {**cases, name: text})
        else:
            assert text == cases.get(name), f"tests/golden/{surface}.txt: {name} differs; make golden writes it again"

    return check
