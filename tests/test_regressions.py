# SPDX-License-Identifier: Apache-2.0
"""Every finding of the outside reviews has a test with a marker, or a reason why it has none."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
findings = importlib.import_module("findings")

FIRST = (
    *(f"R{number}" for number in range(1, 17)),
    *("R7a", "R7b", "R15a"),
    *(
        f"R16-{word}"
        for word in ("early", "words", "password", "inhibitors", "dns", "realtime", "rbac", "record", "rows", "links")
    ),
    "R16-rollback",
    *("A1", "A2", "A2b", "A3", "A4", "A5", "A6", "A7"),
    *("B", "C", "D", "E", "F", "G", "H", "I", "J"),
    *(f"B{number}" for number in range(1, 12)),
    *(f"O{number}" for number in range(1, 5)),
    *(f"O-s{number}" for number in range(1, 12)),
)
"""R16 and E stand for lists: each of their rows has a word behind the number."""


SECOND = (
    *(f"units-{number:02}" for number in (*range(1, 20), 23)),
    "units-13b",
    *(f"configs-{number:02}" for number in (*range(1, 16), 21, *range(23, 28))),
    *(f"user-U{number}" for number in range(1, 13)),
    "user-U3b",
    *(f"adversary-{number}" for number in range(1, 11)),
    *(f"ostree-N{number}" for number in range(1, 8)),
    *(f"fleet-F{number}" for number in range(1, 11)),
    *(f"mission-{number}" for number in range(1, 8)),
    *(
        f"mission-{mutant}"
        for mutant in ["O1", "X2", "A2", "K3", "DI1", "W4", "W1", "V2", "X3", "X4", "P5", "F2", "F3", "F4", "K5"]
    ),
)
"""Rows of the second testing from outside; what only held has none."""


def _names() -> Iterator[str]:
    for finding in findings.findings():
        yield from findings.names_of(finding.name)
    yield from findings.without_test()


NAMES = frozenset(_names())


@pytest.mark.parametrize("finding", (*FIRST, *SECOND))
def test_every_finding_has_a_test_or_a_reason(finding: str) -> None:
    assert any(name == finding or name.startswith(f"{finding}-") for name in NAMES)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_name_belongs_to_a_review(name: str) -> None:
    assert findings.review_of(name)


def test_every_rule_is_a_sentence() -> None:
    rules = {finding.rule for finding in findings.findings()}
    assert not [rule for rule in rules if not rule.endswith(".") or rule[0].islower() or "|" in rule]


def test_no_reason_is_empty() -> None:
    assert all(findings.without_test().values())
