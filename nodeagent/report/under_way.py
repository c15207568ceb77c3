# SPDX-License-Identifier: Apache-2.0
"""The text that a boot without an agent shows while an update is under way: what is held, and how to continue."""

from __future__ import annotations

from typing import Final

from nodeagent.report.status import Status
from nodeagent.update.states import Phase

# Phases in which an update may hold nothing of this node yet, or may have ended half-way: the previous phase decides.
UNDECIDED: Final = frozenset({Phase.STAGING, Phase.LEASING})


def under_way(before: str, status: Status, *, released: bool) -> str:
    """Return the text, "" if no update holds this node. ``before`` is the previous text; ``released``: the update gave
    back what it held before this status."""
    match status.phase:
        case Phase.IDLE:
            return ""
        case Phase.DEGRADED:
            return "" if released else before
        case phase if phase in UNDECIDED:
            return before
        case phase:
            return _text(f"the update to {status.goal} is under way ({phase} since {status.since})", status)


def _text(what: str, status: Status) -> str:
    held = "the lease of this node" + ", its slot and its cordon" * (status.backend != "local")
    lines = [
        f"nodeagent does not run in this boot, and {what}.",
        f"Held until the agent continues: {held}.",
        "Why it does not run: systemctl status nodeagent; systemd-delta --type=masked,overridden,extended",
        "To continue: systemctl unmask nodeagent; systemctl enable --now nodeagent. It resumes or reverts the update.",
        "To end it without the agent: restore the files by hand, then release what is held"
        + ("." if status.backend == "local" else ": kubectl uncordon, kubectl delete lease."),
    ]
    return "\n".join(lines) + "\n"
