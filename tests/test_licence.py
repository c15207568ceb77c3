# SPDX-License-Identifier: Apache-2.0
"""Each source file names its licence on its first lines. ruff (CPY001) asks this of Python files, this of the rest."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LICENCE = "SPDX-License-Identifier: Apache-2.0"
TREES = (".ci", ".github", "docs", "integration", "nodeagent", "packaging", "systemd", "tests")
SUFFIXES = {".sh", ".go", ".js", ".css", ".html", ".spec", ".cil"}
UNITS = {".service", ".timer"}
# Output of builds.
SKIPPED = {"__pycache__", "build", "node_modules", "target"}


def is_source(path: Path) -> bool:
    """Python files are left to ruff. Units of test hosts are data of tests."""
    name = path.relative_to(ROOT)
    if path.is_symlink() or not path.is_file() or SKIPPED & set(name.parts):
        return False
    if path.suffix in UNITS:
        return name.parts[0] == "systemd"
    return path.suffix in SUFFIXES or (not path.suffix and path.read_bytes().startswith(b"#!"))


def test_each_source_file_names_the_licence() -> None:
    paths = [ROOT / "Makefile", *filter(is_source, (path for tree in TREES for path in (ROOT / tree).rglob("*")))]
    assert len(paths) > 50
    missing = [
        str(path.relative_to(ROOT)) for path in paths if LICENCE not in "".join(path.read_text().splitlines()[:3])
    ]
    assert missing == [], f"add a comment with {LICENCE!r} below the first line, if that is #!, or as the first"


def test_the_licence_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert f"SPDX-License-Identifier: {project['project']['license']}" == LICENCE
    assert project["tool"]["ruff"]["lint"]["flake8-copyright"]["notice-rgx"] == f"# {LICENCE}"
    assert (ROOT / "LICENSE").read_text().split()[:3] == ["Apache", "License", "Version"]
