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


# Phases in which the update must hold the node lease.
DISRUPTIVE = frozenset({Phase.DRAINING, Phase.WRITING, Phase.ACTING, Phase.VERIFYING, Phase.REBOOTING, Phase.REVERTING})

# Seconds after which a phase has failed; None where something else bounds it, as its comment says.
DEADLINE: Mapping[Phase, float | None] = MappingProxyType(
    {
        Phase.IDLE: None,
        # Enough for an image over a slow link. Without progress it ends much sooner (os.no_progress).
        Phase.STAGING: 3 * 3600.0,
        # The maintenance of another holder has no limit; the status names the holder.
        Phase.LEASING: None,
        # Settings (drain.timeout), kept over restarts.
        Phase.DRAINING: None,
        # For one file: five times the kernel's limit for a hung task, while an fsync takes seconds.
        Phase.WRITING: 600.0,
        # Each action has its own, shorter deadline (settings); this bounds the sum.
        Phase.ACTING: 3600.0,
        # Settle time and "not yet" answers.
        Phase.VERIFYING: 900.0,
        # Inhibitors have their own bound (settings); after that systemd owns the clock.
        Phase.REBOOTING: None,
        # For one file, or for all actions.
        Phase.REVERTING: 3600.0,
        # A cluster that is down, or another holder of the node, has no limit. Each call is bounded.
        Phase.RELEASING: None,
        Phase.DEGRADED: None,
    }
)

# Phases whose deadline starts again with each file: how long they may take depends on how much there is to write.
BY_PROGRESS = frozenset({Phase.WRITING, Phase.REVERTING})
