# SPDX-License-Identifier: Apache-2.0
"""How an update can end, and what a command that waited for it exits with.

The values are part of ``history/v1`` and of the D-Bus signal ``UpdateFinished``. The last two have no entry in the
history: nothing was begun, or nothing was changed and the agent tries the same config again.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from nodeagent.kinds import Kind
from nodeagent.reasons import reason_of


class UpdateOutcome(StrEnum):
    DONE = "done"
    DONE_AFTER_FALLBACK = "done-after-fallback"
    # The parts that need no disruption are applied; the rest of the config waits.
    PARTIAL = "partial"
    REVERTED = "reverted"
    DEGRADED = "degraded"
    # Another config became the desired one before anything was written.
    SUPERSEDED = "superseded"
    # The current config is desired again, or none is, before anything was written.
    WITHDRAWN = "withdrawn"
    # An operator cancelled it.
    CANCELLED = "cancelled"
    # This host cannot take the config. In the history only if an update had begun.
    REFUSED = "refused"
    POSTPONED = "postponed"
    # The config is the current one already.
    UNCHANGED = "unchanged"


IN_HISTORY: Final = tuple(
    outcome for outcome in UpdateOutcome if outcome not in (UpdateOutcome.POSTPONED, UpdateOutcome.UNCHANGED)
)

# Ends of an update whose config is the current one afterwards.
VERIFIED: Final = (UpdateOutcome.DONE, UpdateOutcome.DONE_AFTER_FALLBACK)

# Ends of an update that left nothing on the host, and is not tried again: it wrote nothing, or was taken back.
ENDED_UNCHANGED: Final = (
    UpdateOutcome.SUPERSEDED,
    UpdateOutcome.WITHDRAWN,
    UpdateOutcome.CANCELLED,
    UpdateOutcome.REFUSED,
)


def exit_code(outcome: str, reason: str = "") -> int:
    match outcome:
        case UpdateOutcome.DONE | UpdateOutcome.DONE_AFTER_FALLBACK | UpdateOutcome.PARTIAL | UpdateOutcome.UNCHANGED:
            return 0
        case UpdateOutcome.SUPERSEDED | UpdateOutcome.WITHDRAWN | UpdateOutcome.CANCELLED:
            return 4
        case UpdateOutcome.REFUSED | UpdateOutcome.POSTPONED:
            kind = reason_of(reason).kind
            # That a service of the host does not answer (5) is about the daemon in a command.
            return 1 if kind is Kind.UNREACHABLE else kind.exit_code
        case _:
            return 1
