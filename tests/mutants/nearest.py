"""The tests of ring 1 that are nearest to a module: what imports it or its users, then its mirror below ``tests``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

MOST = 8
"""Test files for one decision."""


def _name(path: Path, root: Path) -> str:
    name = ".".join(path.relative_to(root).with_suffix("").parts)
    return name.removesuffix(".__init__")


def _imports(path: Path) -> frozenset[str]:
    text = path.read_text(encoding="utf-8")
    found: set[str] = set()
    for module, names in re.findall(r"^\s*from ((?:nodeagent|tests)[\w.]*) import \(?([\w\s,]+)", text, re.MULTILINE):
        found.add(module)
        found.update(f"{module}.{name.strip()}" for name in names.split(","))
    return frozenset(found)


@cache
def _tree(root: Path) -> tuple[Mapping[Path, frozenset[str]], Mapping[str, frozenset[str]]]:
    tests = {path: _imports(path) for path in sorted((root / "tests").rglob("test_*.py"))}
    product = {_name(path, root): _imports(path) for path in sorted((root / "nodeagent").rglob("*.py"))}
    return tests, product


def mirror(root: Path, module: Path) -> Path:
    """Return the folder of the tests of ``module``."""
    return root / "tests" / module.relative_to(root / "nodeagent").parent


def nearest(root: Path, module: Path) -> list[Path]:
    """Return at most ``MOST`` files, the nearest first."""
    tests, product = _tree(root)
    name = _name(module, root)
    users = {user for user, imports in product.items() if name in imports}
    own = mirror(root, module)
    theirs = {mirror(root, root / f"{user.replace('.', '/')}.py") for user in users}
    words = set(module.stem.split("_"))

    def distance(test: Path) -> tuple[int, int, int]:
        imports = tests[test]
        if name in imports:
            step = 0
        elif users & imports or theirs & set(test.parents):
            step = 1
        elif own in test.parents:
            step = 2
        else:
            step = 3
        shared = len(words & set(test.stem.split("_")))
        return step, -shared, len(imports)

    near = sorted(tests, key=distance)
    return [test for test in near if distance(test)[0] < 3][:MOST]
