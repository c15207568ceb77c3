"""How an update can end, and what a command that waited for it exits with.

The values are part of ``history/v1`` and of the D-Bus signal ``UpdateFinished``. The last three have no entry in the
history: nothing was begun, or nothing was changed and the agent tries the same config again.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

__all__ = ["ENDED_UNCHANGED", "IN_HISTORY", "UpdateOutcome", "exit_code"]


class UpdateOutcome(StrEnum):
    DONE = "done"
    DONE_AFTER_FALLBACK = "done-after-fallback"
    REVERTED = "reverted"
    DEGRADED = "degraded"
    SUPERSEDED = "superseded"  # another config became the desired one before anything was written
    WITHDRAWN = "withdrawn"  # the current config is desired again, or none is, before anything was written
    REFUSED = "refused"
    POSTPONED = "postponed"
    UNCHANGED = "unchanged"  # the config is the current one already


IN_HISTORY: Final = (
    UpdateOutcome.DONE,
    UpdateOutcome.DONE_AFTER_FALLBACK,
    UpdateOutcome.REVERTED,
    UpdateOutcome.DEGRADED,
    UpdateOutcome.SUPERSEDED,
    UpdateOutcome.WITHDRAWN,
)

ENDED_UNCHANGED: Final = (UpdateOutcome.SUPERSEDED, UpdateOutcome.WITHDRAWN)
"""Ends of an update that wrote nothing, and is not tried again."""

_BY_REASON: Final = {
    "InvalidInput": 2,
    "ImageInvalid": 2,
    "ImageNotPinned": 2,
    "Unreconcilable": 3,
    "NoDeployments": 3,
    "BootcHost": 3,
    "Refused": 4,
    "LeaseHeld": 4,
    "LeaseLost": 4,
    "LeaseGivenBack": 4,
    "SlotLost": 4,
    "DrainCanceled": 4,
    "DrainTimedOut": 4,
    "Drifted": 4,
    "RebootNotAllowed": 4,
    "RolledBack": 4,
    "ConfigRejected": 4,
    "OtherDriver": 4,
    "StagedByOther": 4,
    "TransactionBusy": 4,
}
"""Exit statuses for an update that changed nothing, where only the reason is known. Others are failures: 1."""


def exit_code(outcome: str, reason: str = "") -> int:
    match outcome:
        case UpdateOutcome.DONE | UpdateOutcome.DONE_AFTER_FALLBACK | UpdateOutcome.UNCHANGED:
            return 0
        case UpdateOutcome.SUPERSEDED | UpdateOutcome.WITHDRAWN:
            return 4
        case UpdateOutcome.REFUSED:
            return _BY_REASON.get(reason, 4)
        case UpdateOutcome.POSTPONED:
            return _BY_REASON.get(reason, 1)
        case _:
            return 1
