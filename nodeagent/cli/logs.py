# SPDX-License-Identifier: Apache-2.0
"""`nodeagent logs`: show the journal of one update."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, Final

from nodeagent.cli._client import ask
from nodeagent.cli._io import flush
from nodeagent.errors import Terminal
from nodeagent.reasons import Reason, hint

PROGRAM: Final = "journalctl"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", nargs="?", default="", help="the update (default: the newest one)")
    parser.add_argument("-f", "--follow", action="store_true", help="show new entries until interrupted")
    parser.add_argument("--json", action="store_true", help="one JSON object of journald for each entry")


def run(args: argparse.Namespace) -> int:
    """Replace this process by journalctl, whose exit status and pager are those of the command."""
    update = find(args.id)
    words = [PROGRAM, f"NODEAGENT_UPDATE_ID={update['update_id']}"]
    if args.follow:
        # All entries of the update so far, and those to come.
        words += ["--follow", "--no-tail"]
    words += ["--output=json"] if args.json else []
    words += [] if sys.stdout.isatty() else ["--no-pager"]
    # exec replaces the process, and what it has buffered is lost.
    flush()
    try:
        os.execvp(PROGRAM, words)  # noqa: S606 - no shell
    except OSError as error:
        message = f"{PROGRAM}: {error.strerror}"
        raise Terminal(message, reason=Reason.TOOL_MISSING, hint=hint(Reason.TOOL_MISSING)) from error


def find(update_id: str) -> dict[str, Any]:
    """Return the update whose id begins with ``update_id``, from the daemon or the store."""
    return ask(lambda client: client.update(update_id), lambda stored: stored.update(update_id))
