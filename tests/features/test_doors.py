# SPDX-License-Identifier: Apache-2.0
"""A feature is known to its folder and to the list of doors only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

import nodeagent
from nodeagent import features, installed
from nodeagent.door import Door
from nodeagent.reasons import known_reasons
from nodeagent.settings.schema import keys, part_keys

PACKAGE: Final = Path(nodeagent.__file__).parent
TESTS: Final = PACKAGE.parent / "tests"
FOLDERS: Final = sorted(path.parent.name for path in PACKAGE.glob("features/*/__init__.py"))
ALL: Final = pytest.mark.parametrize(("name", "door"), features.doors().items(), ids=features.NAMES)


def test_each_folder_has_its_door() -> None:
    assert sorted(features.NAMES) == FOLDERS


@ALL
def test_its_tests_and_its_page_have_a_place(name: str, door: Door) -> None:
    assert list((PACKAGE.parent / "tests/features" / name).glob("test_*.py"))
    assert (PACKAGE.parent / "docs" / door.page).is_file()


def _outside(name: str) -> Iterator[Path]:
    """Yield the modules that may not know the feature."""
    own = PACKAGE / "features" / name
    for path in PACKAGE.rglob("*.py"):
        if own not in path.parents and path != PACKAGE / "features/__init__.py":
            yield path


@cache
def _imports(path: Path) -> tuple[str, ...]:
    """Return the imports of a module, which is parsed once for all features."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return tuple(ast.unparse(node) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))


def _words(door: Door) -> set[str]:
    """Return the words of its reasons, settings and events."""
    settings = {key for part in door.settings for key in part_keys(part)}
    return settings | set(door.reasons or ()) | {view.event.__name__ for view in door.events}


@ALL
def test_nothing_outside_of_its_folder_imports_it(name: str, door: Door) -> None:
    module = f"nodeagent.features.{name}"
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in _outside(name)
        if any(module in text for text in _imports(path))
    }
    assert found == set()


@ALL
def test_nothing_outside_of_its_folder_has_its_words(name: str, door: Door) -> None:
    words = re.compile(r"\b(?:" + "|".join(map(re.escape, sorted(_words(door)))) + r")\b")
    found = {
        f"{path.relative_to(PACKAGE).as_posix()}: {match.group()}"
        for path in _outside(name)
        if _words(door) and (match := words.search(path.read_text()))
    }
    assert found == set()


def test_two_features_have_no_word_in_common() -> None:
    words = [word for door in features.doors().values() for word in _words(door)]
    assert len(words) == len(set(words))


def test_without_features_there_are_only_the_settings_and_reasons_of_the_base() -> None:
    of_features = {word for door in features.doors().values() for word in _words(door)}
    with_features = {*keys(), *known_reasons()}
    with installed.replaced(()):
        assert {*keys(), *known_reasons()} == with_features - of_features


def _features_in(path: Path) -> set[str]:
    """Return the features of which a file imports something, or something of their tests."""
    modules: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules += [f"{node.module}.{alias.name}" for alias in node.names]
    found = re.findall(r"^(?:nodeagent|tests)\.features\.(\w+)", "\n".join(modules), re.MULTILINE)
    return set(found) & set(features.NAMES)


def test_tests_of_the_base_import_no_feature() -> None:
    paths = [*TESTS.glob("features/*.py"), *(path for path in TESTS.rglob("*.py") if "features" not in path.parts)]
    assert {str(path.relative_to(TESTS)): found for path in paths if (found := _features_in(path))} == {}


@pytest.mark.parametrize("name", features.NAMES)
def test_tests_of_a_feature_import_no_other(name: str) -> None:
    paths = (TESTS / "features" / name).rglob("*.py")
    assert {path.name: others for path in paths if (others := _features_in(path) - {name})} == {}
