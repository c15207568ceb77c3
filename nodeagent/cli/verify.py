# SPDX-License-Identifier: Apache-2.0
"""`nodeagent verify`: compare this host with its current config, and list the drift."""

from __future__ import annotations

import argparse
from typing import Final

from nodeagent.cli._client import ask
from nodeagent.cli._io import emit, printable
from nodeagent.cli._plan_view import print_diff
from nodeagent.cli._render import BAD, GOOD, WARN, change_name, counted, paint, table

KEY: Final = "not_compared"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--diff", action="store_true", help="show what was changed in files and units, without secrets")
    parser.add_argument("--json", action="store_true", help="one JSON object (nodeagent/verify/v1)")


def run(args: argparse.Namespace) -> int:
    """Return 0, or 1 if there is drift. A change that waits is no drift.

    The daemon compares, because only root may read every managed file.
    """
    answer = ask(lambda client: client.verify(diff=args.diff))
    if args.json:
        emit(answer)
    elif answer["ok"]:
        rest = [f"{printable(change_name(entry['entry']))} {printable(entry['why'])}" for entry in answer[KEY]]
        print(paint(f"this host matches {answer['config']}" + ", as far as it can be compared" * bool(rest), GOOD))
        print("".join(f"{line}\n" for line in rest), end="")
    else:
        table(
            ["ENTRY", "WHAT IS WRONG"],
            [[printable(change_name(drift["entry"])), printable(drift["why"])] for drift in answer["drift"]],
        )
        for text in (drift["diff"] for drift in answer["drift"] if "diff" in drift):
            print()
            print_diff(text)
        print(paint(f"\nthis host differs from {answer['config']}: {counted(len(answer['drift']), 'difference')}", BAD))
    # Missing without a blocked config.
    if not args.json and (waits := answer.get("waits")):
        print(paint(f"\nnot applied yet, and no drift: {counted(len(waits), 'change')} of the desired config", WARN))
        print("\n".join(f"  {printable(change_name(entry))}" for entry in waits))
    return 0 if answer["ok"] else 1
