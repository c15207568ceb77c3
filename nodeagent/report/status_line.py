# SPDX-License-Identifier: Apache-2.0
"""The status as a line."""

from __future__ import annotations

from nodeagent.report.parts.registry import part_views
from nodeagent.report.status import Status
from nodeagent.update.states import Phase


def line(status: Status) -> str:
    """Return the line of ``STATUS=``, which ``systemctl status`` shows."""
    parts = [str(status.phase)]
    if status.step is not None:
        parts.append(
            f"{status.step.name} ({status.step.index}/{status.step.count})" if status.step.count else status.step.name
        )
    if status.reason:
        parts.append(status.reason)
    if status.message:
        parts.append(status.message)
    elif status.phase is Phase.IDLE and status.current:
        parts.append(f"current config is {status.current}")
    if status.partial is not None:
        count, name = len(status.partial.waits), status.partial.name
        parts.append(f"{count} changes of {name} wait" if count > 1 else f"1 change of {name} waits")
    for view in part_views():
        part = status.part(view.part)
        if part is not None and (phrase := view.phrase(part, status)):
            parts.append(phrase)
    if status.problems:
        parts.append("problem: " + "; ".join(f"{problem.reason}: {problem.message}" for problem in status.problems))
    # systemd drops a notification of more than 4096 bytes, and a character has up to four.
    return ": ".join(parts)[:1000]
