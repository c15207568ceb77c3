"""The phases of an update, and how long each may last. ``transitions`` says which may follow which."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from nodeagent.reasons import Reason

__all__ = ["BY_PROGRESS", "DEADLINE", "DISRUPTIVE", "Phase"]


class Phase(StrEnum):
    """The same word is in the record, the journal, ``STATUS=`` and the contract's JSON."""

    IDLE = "Idle"
    STAGING = "Staging"
    LEASING = "Leasing"
    DRAINING = "Draining"
    WRITING = "Writing"
    ACTING = "Acting"
    VERIFYING = "Verifying"
    REBOOTING = "Rebooting"
    REVERTING = Reason.REVERTING
    RELEASING = "Releasing"
    DEGRADED = "Degraded"


DISRUPTIVE = frozenset({Phase.DRAINING, Phase.WRITING, Phase.ACTING, Phase.VERIFYING, Phase.REBOOTING, Phase.REVERTING})
"""Phases in which the update must hold the node lease."""

DEADLINE: Mapping[Phase, float | None] = MappingProxyType(
    {
        Phase.IDLE: None,
        Phase.STAGING: 3 * 3600.0,  # an image over a slow link; without progress it ends much sooner (os.no_progress)
        Phase.LEASING: None,  # the maintenance of another holder has no limit; the status names the holder
        Phase.DRAINING: None,  # settings (drain.timeout), kept over restarts
        Phase.WRITING: 600.0,  # for one file: five times what the kernel calls a hung task, and an fsync takes seconds
        Phase.ACTING: 3600.0,  # each action has its own, shorter deadline (settings); this bounds the sum
        Phase.VERIFYING: 900.0,  # settle time and "not yet" answers
        Phase.REBOOTING: None,  # inhibitors have their own bound (settings); after that systemd owns the clock
        Phase.REVERTING: 3600.0,  # for one file, or for all actions
        Phase.RELEASING: None,  # a cluster that is away, or who has the node by then; each call is bounded
        Phase.DEGRADED: None,
    }
)
"""Seconds after which a phase has failed; None where something else bounds it, as its comment says."""

BY_PROGRESS = frozenset({Phase.WRITING, Phase.REVERTING})
"""Phases whose deadline starts again with each file: how long they may take depends on how much there is to write."""
