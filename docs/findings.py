# SPDX-License-Identifier: Apache-2.0
"""The findings of outside reviews, from the markers ``finding`` of the tests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from marked import ROOT, marked

WITHOUT_TEST = ROOT / "tests/findings_without_test.txt"

REVIEWS: Mapping[str, str] = {
    r"R\d+[a-z]?(-.*)?": "Review of reliability and security",
    r"[A-J]\d*b?(-(?!s\d).*)?|16": "Review by new users, and against peers",
    r"O\d+|O-s\d+": "A real rpm-ostreed",
    r"soft-reboots|rivals|kubectl|medik8s|sysext|peers": "Other programs and their behaviour",
    r"units-.*": "Second testing: systemd units of public bug reports",
    r"configs-.*": "Second testing: published configs",
    r"user-.*": "Second testing: a new user",
    r"adversary-.*": "Second testing: under attack",
    r"ostree-.*": "Second testing: rpm-ostree and bootc",
    r"fleet-.*": "Second testing: clusters and scale",
    r"mission-.*": "Second testing: packages, tests and claims",
}
"""A pattern for the names of each review, in the order of the page. The first that matches counts."""


class Finding(NamedTuple):
    name: str
    rule: str
    tests: tuple[str, ...]


def findings() -> list[Finding]:
    """Each pair of finding and rule with its tests, in the order of the files."""
    tests: dict[tuple[str, str], list[str]] = {}
    for (name, rule), test in marked("finding"):
        tests.setdefault((name, rule), []).append(test)
    return [Finding(name, rule, tuple(dict.fromkeys(at))) for (name, rule), at in tests.items()]


def without_test() -> dict[str, str]:
    """The findings that have no test, with the reason."""
    lines = WITHOUT_TEST.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition(": ") for line in lines if line and not line.startswith("#"))
    return {name: reason for name, _, reason in pairs}


def names_of(finding: str) -> list[str]:
    """The single names of a marker, which may have several: ``R3, R10``."""
    return [re.sub(r" .*", "", name) for name in finding.split(", ")]


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def review_of(name: str) -> str:
    """The review that a finding is from. Raises ``ValueError`` for an unknown name."""
    for pattern, review in REVIEWS.items():
        if re.fullmatch(pattern, names_of(name)[0]):
            return review
    raise ValueError(f"no review has a finding of the name {name!r}")


def page() -> str:
    """The tables of docs/development/regressions.md."""
    sections: dict[str, list[Finding]] = {review: [] for review in REVIEWS.values()}
    for finding in findings():
        sections[review_of(finding.name)].append(finding)
    text: list[str] = []
    for review, rows in sections.items():
        if not rows:
            continue
        text += [f"## {review}", "", "| finding | rule | test |", "|---|---|---|"]
        for row in sorted(rows, key=lambda row: _natural(row.name)):
            tests = ", ".join(f"`{test}`" for test in row.tests)
            text.append(f"| {row.name} | {row.rule} | {tests} |")
        text.append("")
    text += ["## Without a test", "", "| finding | reason |", "|---|---|"]
    reasons = without_test()
    text += [f"| {name} | {reasons[name]} |" for name in sorted(reasons, key=_natural)]
    return "\n".join(text)
