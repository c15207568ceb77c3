# SPDX-License-Identifier: Apache-2.0
"""`nodeagent selfcheck`: check the installation of nodeagent on this host.

Each way of installing ends with it. It needs neither the daemon nor root; what it cannot check is skipped with the
reason.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

import nodeagent
from nodeagent.cli._io import emit, printable
from nodeagent.cli._render import BAD, DIM, GOOD, WARN, counted, paint, table
from nodeagent.core.self_check import SelfCheck
from nodeagent.features.selfcheck.cli._survey import survey

SCHEMA: Final = "nodeagent/selfcheck/v1"
STYLES: Final = {"ok": GOOD, "warning": WARN, "failed": BAD, "skipped": DIM}
FAILED: Final = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help=f"one JSON object ({SCHEMA})")


def run(args: argparse.Namespace) -> int:
    """Return 0; 1 if a check failed, after showing all of them."""
    checks = asyncio.run(survey())
    bad = [check for check in checks if check.result == "failed"]
    if args.json:
        listed = [asdict(check) for check in checks]
        emit({"schema": SCHEMA, "version": nodeagent.__version__, "ok": not bad, "checks": listed})
    else:
        _print(checks)
    return FAILED if bad else 0


def _print(checks: Sequence[SelfCheck]) -> None:
    rows = [[check.id, paint(check.result, STYLES[check.result]), printable(check.message)] for check in checks]
    table(["CHECK", "RESULT", "DETAILS"], rows, below=[_below(check) for check in checks])
    numbers = {result: sum(check.result == result for check in checks) for result in STYLES}
    print()
    if numbers["failed"]:
        print(paint(f"{numbers['failed']} of {counted(len(checks), 'check')} failed", BAD))
    else:
        warnings = f"{counted(numbers['warning'], 'warning')}, " if numbers["warning"] else ""
        print(f"nodeagent is installed correctly: {numbers['ok']} ok, {warnings}{numbers['skipped']} skipped")


def _below(check: SelfCheck) -> Sequence[str]:
    # A check that does not apply needs nothing to be done.
    return [printable(f"what now: {check.remedy}")] if check.remedy else []
