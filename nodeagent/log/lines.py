"""Entries as lines on stderr, for terminals, tests and containers."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping

from nodeagent.log.messages import DEBUG, ERROR, INFO, NOTICE, WARNING

WORDS = {ERROR: "error", WARNING: "warning", NOTICE: "notice", INFO: "info", DEBUG: "debug"}
COLOURS = {ERROR: "\x1b[31m", WARNING: "\x1b[33m", NOTICE: "\x1b[1m", INFO: "", DEBUG: "\x1b[2m"}
RESET = "\x1b[0m"


def render(entry: Mapping[str, object], clock: str, *, colour: bool) -> str:
    priority = int(str(entry.get("PRIORITY", INFO)))
    word = WORDS.get(priority, "info")
    fields = "  ".join(
        f"{key}={_quoted(str(value))}" for key, value in entry.items() if key.islower() and key != "traceback"
    )
    head = f"{clock} {word:<7} {entry.get('MESSAGE', '')}"
    if colour and COLOURS.get(priority):
        head = f"{COLOURS[priority]}{head}{RESET}"
    lines = [f"{head}  {fields}" if fields else head]
    lines += [f"    {line}" for line in str(entry.get("traceback", "")).splitlines()]
    return "\n".join(lines) + "\n"


def _quoted(value: str) -> str:
    return repr(value) if any(c.isspace() or c in "\"'=" for c in value) else value


class Lines:
    """A sink that writes to the current stderr, which may be redirected at any time."""

    threshold = WARNING

    def send(self, entry: Mapping[str, object]) -> None:
        # Closed, full, or none at all.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            # A terminal shows what happens now. A log of a container is read days later and elsewhere.
            terminal = sys.stderr.isatty()
            clock = time.strftime("%H:%M:%S" if terminal else "%Y-%m-%dT%H:%M:%S%z")
            sys.stderr.write(render(entry, clock, colour=terminal and "NO_COLOR" not in os.environ))
            sys.stderr.flush()

    def close(self) -> None:
        pass
