# SPDX-License-Identifier: Apache-2.0
"""Which files a branch changed, and the tests of ring 1 that are nearest to them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, zip_longest
from pathlib import Path

from tests.mutants.nearest import imports_of, name_of, nearest

FOLDERS: Mapping[str, str] = {
    "docs": "tests/test_docs.py",
    "integration": "tests/integration",
    "packaging": "tests/packaging",
    "systemd": "tests/systemd",
}
"""The tests of what is not imported, by the first folder of its path."""


def changed_files(root: Path, since: str) -> list[Path]:
    """Return the files that differ from the merge base with ``since``, and those that git does not know yet.

    Without a branch of that name, as in a shallow clone, only what is not committed.
    """
    bases = (_git(root, "merge-base", "HEAD", base) for base in (since, f"origin/{since}", "HEAD"))
    commit = next((base.stdout.strip() for base in bases if base.returncode == 0), "")
    if not commit:
        raise SystemExit("make quick: this is no clone with a history to compare with; use make check unit")
    names = _names(root, "diff", "--name-only", "-z", commit)
    return [root / name for name in (*names, *_names(root, "ls-files", "--others", "--exclude-standard", "-z"))]


def _names(root: Path, *arguments: str) -> list[str]:
    listed = _git(root, *arguments)
    listed.check_returncode()
    return [name for name in listed.stdout.split("\0") if name]


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)


def choose(root: Path, changed: Iterable[Path]) -> list[Path]:
    """Return the test files for these changes, the nearest first: a run that has no time for all begins with them.

    Changed test files are first, then the nearest of each changed file in turn. The tests of the whole tree are last.
    """
    paths = list(changed)
    own = [path for path in paths if _is_test(root, path) and path.exists()]
    near = zip_longest(*(list(_near(root, path)) for path in paths if not _is_test(root, path)))
    whole = sorted((root / "tests").glob("test_*.py")) if any(path.suffix == ".py" for path in paths) else []
    return list(dict.fromkeys(test for test in chain(own, chain.from_iterable(near), whole) if test))


def _is_test(root: Path, path: Path) -> bool:
    return path.is_relative_to(root / "tests") and path.name.startswith("test_") and path.suffix == ".py"


def _near(root: Path, path: Path) -> Iterator[Path]:
    first, *_ = path.relative_to(root).parts
    tests, _ = imports_of(root)
    if path.is_relative_to(root / "tests"):
        yield from (test for test in tests if test.parent == path.parent)
        if path.suffix == ".py":
            yield from (test for test, imports in tests.items() if name_of(path, root) in imports)
        else:
            yield from _naming(root, path.stem)
    elif first == "nodeagent" and path.suffix == ".py":
        yield from nearest(root, path)
    elif first in FOLDERS:
        place = root / FOLDERS[first]
        yield from sorted(place.rglob("test_*.py")) if place.is_dir() else [place]
    else:
        yield from _naming(root, path.name)


def _naming(root: Path, name: str) -> list[Path]:
    """Return the tests that read the file of this name, such as a golden text or the Makefile."""
    return [test for test in imports_of(root)[0] if f'"{name}"' in test.read_text(encoding="utf-8")]
