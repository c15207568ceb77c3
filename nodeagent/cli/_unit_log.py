"""The last journal lines of a unit that failed in an update."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from nodeagent.cli._io import printable

__all__ = ["last_lines"]

LINES: Final = 5
# Seconds, and characters of one line.
TIMEOUT: Final = 5.0
WIDTH: Final = 300


def last_lines(failed: dict[str, Any] | None) -> list[str]:
    """Return lines without secrets; none if the user may not read the journal, or it has none of the unit."""
    if not failed:
        return []
    import subprocess

    from nodeagent.core.report.redact import redact

    command = ["journalctl", f"--unit={failed['name']}", f"--lines={LINES}", "--output=cat", "--no-pager", "--quiet"]
    if failed["at"]:
        # What came later is about the previous config.
        command.append(f"--until=@{datetime.fromisoformat(failed['at']).timestamp() + 1:.0f}")
    try:
        done = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    text = redact(done.stdout.decode(errors="replace"))
    return [printable(line)[:WIDTH] for line in text.splitlines()[-LINES:]]
