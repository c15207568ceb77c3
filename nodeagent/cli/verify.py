"""`nodeagent verify`: does this host have what its current config says? Drift is what it does not have."""

from __future__ import annotations

import argparse

from nodeagent.cli._client import Client, ask
from nodeagent.cli._io import emit, printable
from nodeagent.cli._render import BAD, GOOD, counted, paint, table

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object (nodeagent/verify/v1)")


def run(args: argparse.Namespace) -> int:
    """0 if all is as configured, 1 if something drifted. Only the daemon may read every managed file."""
    answer = ask(Client.verify)
    if args.json:
        emit(answer)
    elif answer["ok"]:
        print(paint(f"this host is as {answer['config']} says", GOOD))
    else:
        table(
            ["ENTRY", "WHAT IS WRONG"],
            [[printable(drift["entry"]), printable(drift["why"])] for drift in answer["drift"]],
        )
        print(
            paint(f"\nthis host is not as {answer['config']} says: {counted(len(answer['drift']), 'difference')}", BAD)
        )
    return 0 if answer["ok"] else 1
