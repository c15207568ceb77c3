# SPDX-License-Identifier: Apache-2.0
"""Count the tests that a run skipped, for the last line of `make test`: `python -m tests.support.skips FILE`."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

# Names a file to which each run of pytest adds a line for each test that it skipped.
VARIABLE = "NODEAGENT_SKIPPED"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    path = os.environ.get(VARIABLE)
    skipped = terminalreporter.stats.get("skipped", [])
    if path and skipped:
        with Path(path).open("a", encoding="utf-8") as file:
            file.writelines(f"{reason(report)}\n" for report in skipped)


def reason(report: Any) -> str:
    """Return the reason of a skipped test on one line. Its report has place, line and text."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return " ".join(text.removeprefix("Skipped: ").split())


def words(lines: list[str]) -> str:
    """Return how many tests were skipped, and why, the most frequent reason first."""
    if not lines:
        return "no test was skipped"
    reasons = "; ".join(f"{count} because: {text}" for text, count in Counter(lines).most_common())
    return f"{len(lines)} skipped: {reasons}"


if __name__ == "__main__":
    record = Path(sys.argv[1])
    print(words(record.read_text(encoding="utf-8").splitlines() if record.exists() else []))
