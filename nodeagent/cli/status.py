"""`nodeagent status`: where the agent stands, who is in the way, and what to do about it."""

from __future__ import annotations

import argparse
from typing import Any

from nodeagent.cli import _offline
from nodeagent.cli._client import Client, ask
from nodeagent.cli._terminal import emit, local_now, on_terminal
from nodeagent.errors import Unreachable

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object (nodeagent/status/v1)")
    parser.add_argument(
        "--watch", action="store_true", help="follow the status until interrupted; with --json one object per line"
    )


def run(args: argparse.Namespace) -> int:
    """0; 1 if the agent is degraded; 5 if there is neither a daemon nor a store to ask."""
    if args.watch:
        from nodeagent.cli.watch import watch

        return watch(as_json=args.json)
    try:
        status = ask(Client.status)
    except Unreachable as why:
        status = _offline.status(why)
    if args.json:
        emit(status)
    else:
        _show(status)
    return exit_code(status)


def exit_code(status: dict[str, Any]) -> int:
    return 1 if status["phase"] == "Degraded" else 0


def _show(status: dict[str, Any]) -> None:
    from nodeagent.cli._status_view import view

    print("\n".join(view(status, local_now(), bar=on_terminal())))
