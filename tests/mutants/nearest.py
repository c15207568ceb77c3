# SPDX-License-Identifier: Apache-2.0
"""The tests of ring 1 that are nearest to a module: what imports it or its users, then its mirror below ``tests``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

MOST = 8
"""Test files for one decision."""


def name_of(path: Path, root: Path) -> str:
    """Return the name under which ``path`` is imported."""
    name = ".".join(path.relative_to(root).with_suffix("").parts)
    return name.removesuffix(".__init__")


def _imports(path: Path) -> frozenset[str]:
    text = path.read_text(encoding="utf-8")
    found: set[str] = set()
    for module, names in re.findall(r"^\s*from ((?:nodeagent|tests)[\w.]*) import (\([^)]*\)|.*)", text, re.MULTILINE):
        found.add(module)
        found.update(f"{module}.{name}" for name in re.findall(r"(?:^|[(,])\s*(\w+)", names))
    return frozenset(found)


@cache
def imports_of(root: Path) -> tuple[Mapping[Path, frozenset[str]], Mapping[Path, frozenset[str]]]:
    """Return what the test files and what the modules of the product import."""
    tests = {path: _imports(path) for path in sorted((root / "tests").rglob("test_*.py"))}
    product = {path: _imports(path) for path in sorted((root / "nodeagent").rglob("*.py"))}
    return tests, product


def mirror(root: Path, module: Path) -> Path:
    """Return the folder of the tests of ``module``, or the next above it that exists."""
    folder = root / "tests" / module.relative_to(root / "nodeagent").parent
    return next(path for path in (folder, *folder.parents) if path.is_dir())


def nearest(root: Path, module: Path) -> list[Path]:
    """Return at most ``MOST`` files, the nearest first."""
    tests, product = imports_of(root)
    name = name_of(module, root)
    using = [path for path, imports in product.items() if name in imports]
    users = {name_of(path, root) for path in using}
    own = mirror(root, module)
    theirs = {mirror(root, path) for path in using}
    words = set(module.stem.split("_"))

    def distance(test: Path) -> tuple[int, int, int]:
        imports = tests[test]
        if name in imports:
            step = 0
        elif own == test.parent:
            step = 1
        elif users & imports or own in test.parents or theirs & set(test.parents):
            step = 2
        else:
            step = 3
        shared = len(words & set(test.stem.split("_")))
        return step, -shared, len(imports)

    return [test for test in sorted(tests, key=distance) if distance(test)[0] < 3][:MOST]
