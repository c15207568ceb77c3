# SPDX-License-Identifier: Apache-2.0
"""The words of features that were removed, by their kind.

Pages, the manual, the dashboard and lists of tests name features. ``tests/features/words.txt`` keeps the words of a
removed feature, so that what names them is no fault until it is edited.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from nodeagent import features
from tests.support.golden import read

RECORD: Final = Path(__file__).parents[1] / "features/words.txt"


def removed() -> list[str]:
    """Return the folders of the features that are recorded and not installed."""
    return [name for name in read(RECORD) if name not in features.NAMES]


def words(kind: str) -> set[str]:
    """Return the words of this kind of the removed features."""
    recorded = read(RECORD)
    pairs = (line.split(" ", 1) for name in removed() for line in recorded[name].splitlines())
    return {word for found, word in pairs if found == kind}


def is_path(path: str) -> bool:
    """Return whether a path of the tree is that of a removed feature."""
    return path.startswith(tuple(f"{tree}/features/{name}/" for name in removed() for tree in ("nodeagent", "tests")))


def is_command(command: str) -> bool:
    """Return whether a command line has a command or an option of a removed feature."""
    return any(f"{command} ".startswith(f"nodeagent {name} ") for name in words("command")) or bool(
        set(command.split()) & words("option")
    )
