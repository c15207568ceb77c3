# SPDX-License-Identifier: Apache-2.0
"""`nodeagent logs`: show the journal of one update; and the last lines of a unit that failed, for the status."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from nodeagent.cli._client import ask
from nodeagent.cli._io import flush, printable
from nodeagent.core.config.text.plain_json import loads
from nodeagent.core.redact import redact
from nodeagent.errors import Terminal
from nodeagent.reasons import Reason, hint

PROGRAM: Final = "journalctl"
LINES: Final = 5
# Lines that are read: those of later starts are among them.
READ: Final = 50
# Seconds, and characters of one line.
TIMEOUT: Final = 5.0
WIDTH: Final = 300
# Seconds after the failure in which journald writes the last lines of what failed.
LATE: Final = 1
# The invocation of a line of the unit, and of one of systemd about it.
INVOCATIONS: Final = ("_SYSTEMD_INVOCATION_ID", "INVOCATION_ID")


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


def last_lines(failed: dict[str, Any] | None) -> list[str]:
    """Return lines without secrets; none if the user may not read the journal, or it has no lines of the unit.

    ``failed`` is the ``failed_unit`` of a status. After its time, the unit may run again, with the previous config.
    """
    if not failed:
        return []
    fields = ",".join(("MESSAGE", *INVOCATIONS))
    command = [
        "journalctl",
        f"--unit={failed['name']}",
        f"--lines={READ}",
        "--output=json",
        f"--output-fields={fields}",
    ]
    command += ["--no-pager", "--quiet"]
    until = datetime.fromisoformat(failed["at"]).timestamp() if failed["at"] else None
    if until is not None:
        command.append(f"--until=@{until + LATE:.3f}")
    try:
        done = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    text = redact("\n".join(_messages(done.stdout, until)))
    return [printable(line)[:WIDTH] for line in text.splitlines()[-LINES:]]


def _messages(output: bytes, until: float | None) -> Iterator[str]:
    """Yield the messages until then, and later ones of the same invocations: a start after it has one of its own."""
    seen = set[str]()
    for line in output.splitlines():
        try:
            entry = loads(line)
            at, message = int(entry["__REALTIME_TIMESTAMP"]) / 1e6, _text(entry["MESSAGE"])
        except (ValueError, TypeError, KeyError):
            # A message that is too long has no value.
            continue
        invocations = {entry[key] for key in INVOCATIONS if isinstance(entry.get(key), str)}
        # The time of the failure is in whole milliseconds.
        if until is None or at < until + 0.001:
            seen |= invocations
        elif not invocations & seen:
            continue
        yield message


def _text(message: str | Sequence[int]) -> str:
    """Return a message, which is a list of bytes if it has characters that cannot be printed."""
    return message if isinstance(message, str) else bytes(message).decode(errors="replace")
