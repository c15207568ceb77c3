"""docs/development/regressions.md names every finding, and each test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs/development/regressions.md").read_text()
FINDINGS = (
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

TEST = re.compile(r"`((?:tests|integration)/[\w/.]+\.py)::(?:\w+::)?(\w+)`")


def rows() -> list[list[str]]:
    cells = [line.strip("|").split(" | ") for line in TEXT.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in cells if row[0].strip() != "finding"]


@pytest.mark.parametrize("finding", FINDINGS)
def test_every_finding_has_a_row(finding: str) -> None:
    names = {name for row in rows() for name in re.split(r",\s*", row[0])}
    assert any(name == finding or name.startswith(f"{finding}-") for name in names)


def test_every_row_has_a_test_or_a_reason() -> None:
    body, _, rest = TEXT.partition("## Not a fault, or built elsewhere")
    without = [line for line in body.splitlines() if re.match(r"\| [A-Z]\w*", line) and not TEST.search(line)]
    assert not without
    assert all(len(row) == 2 and row[1] for row in rows() if f"| {row[0]} | {row[-1]} |" in rest)


@pytest.mark.parametrize(("path", "name"), sorted(set(TEST.findall(TEXT))))
def test_the_test_exists(path: str, name: str) -> None:
    assert re.search(rf"^\s*(?:async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE)
