# SPDX-License-Identifier: Apache-2.0
"""The table of the stories on both back ends of the OS names each module of their rings, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECTION = re.compile(r"## The back ends of the OS\n(.*?)\n## ", re.DOTALL)
MODULE = re.compile(r"`(?:(ostree|vm)/)?((?:test|bench)_\w+\.py)`")


def named() -> set[str]:
    """Return the modules of the section. One without a ring is of the ring before it."""
    found = SECTION.search((ROOT / "docs/development/testing.md").read_text())
    assert found is not None
    modules, ring = set[str](), ""
    for match in MODULE.finditer(found[1]):
        ring = match[1] or ring
        modules.add(f"{ring}/{match[2]}")
    return modules


def test_each_story_is_in_the_table() -> None:
    hosts = ROOT / "integration/hosts"
    there = {f"{ring}/{path.name}" for ring in ("ostree", "vm") for path in (hosts / ring).glob("test_*.py")}
    benches = {f"{ring}/{path.name}" for ring in ("ostree", "vm") for path in (hosts / ring).glob("bench_*.py")}
    assert there - named() == set(), "add a row, or a cell, with what each back end has of it"
    assert named() - there - benches == set(), "these modules are gone"
