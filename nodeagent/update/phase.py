"""The phases of an update, how long each may last, and which state may follow which.

A state is a leg (``legs``) and a phase; no other state can be recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from nodeagent.reasons import Reason
from nodeagent.update.legs import Abort, Apply, Fallback, Leg, Prepare, Rest, Revert, Unreleased


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
        # For one part of it, such as the units or one check: the time for verification and the settle time of the
        # settings, which are at most 1200 s together, with a full listing of the kubelet.
        Phase.VERIFYING: 1800.0,
        # Inhibitors have their own bound (settings); after that systemd owns the clock.
        Phase.REBOOTING: None,
        # For one file, or for all actions.
        Phase.REVERTING: 3600.0,
        # A cluster that is down, or another holder of the node, has no limit. Each call is bounded.
        Phase.RELEASING: None,
        Phase.DEGRADED: None,
    }
)

# Phases whose deadline starts again with each file, and with each part of a verification: how long they may take
# depends on how much there is to write, and how many checks there are.
BY_PROGRESS = frozenset({Phase.WRITING, Phase.REVERTING, Phase.VERIFYING})


State = tuple[type[Leg], Phase]

IDLE: Final[State] = (Rest, Phase.IDLE)
DEGRADED: Final[State] = (Rest, Phase.DEGRADED)
ABORT: Final[State] = (Abort, Phase.RELEASING)
REVERT: Final[State] = (Revert, Phase.REVERTING)
UNRELEASED: Final[State] = (Unreleased, Phase.DEGRADED)
STILL_RELEASING: Final[State] = (Unreleased, Phase.RELEASING)

# Legs between which the same update moves are next to each other. Each row ends with the ways out of the leg.
NEXT: Final[Mapping[State, frozenset[State]]] = MappingProxyType(
    {
        # A host at rest may report another reason.
        IDLE: frozenset({IDLE, (Prepare, Phase.STAGING), (Prepare, Phase.LEASING), DEGRADED}),
        DEGRADED: frozenset({IDLE, (Prepare, Phase.STAGING), (Prepare, Phase.LEASING), DEGRADED}),
        # Nothing on the host was changed, so another desired config takes over when everything is given back.
        (Prepare, Phase.STAGING): frozenset({(Prepare, Phase.LEASING), ABORT, DEGRADED}),
        (Prepare, Phase.LEASING): frozenset({(Prepare, Phase.DRAINING), (Apply, Phase.WRITING), ABORT, DEGRADED}),
        (Prepare, Phase.DRAINING): frozenset({(Apply, Phase.WRITING), ABORT, DEGRADED}),
        ABORT: frozenset({IDLE, DEGRADED, STILL_RELEASING, UNRELEASED}),
        # The first byte written is the point of no return: from here on the update is finished or reverted.
        (Apply, Phase.WRITING): frozenset({(Apply, Phase.ACTING), REVERT, DEGRADED}),
        # To Verifying of the fallback when the host rebooted before it was requested to.
        (Apply, Phase.ACTING): frozenset(
            {
                (Apply, Phase.VERIFYING),
                (Apply, Phase.REBOOTING),
                (Fallback, Phase.DRAINING),
                (Fallback, Phase.REBOOTING),
                (Fallback, Phase.VERIFYING),
                REVERT,
                DEGRADED,
            }
        ),
        # To Staging when the staged deployment was lost, and to Writing when the merge of /etc into a new deployment
        # took something of the config back.
        (Apply, Phase.REBOOTING): frozenset({(Apply, Phase.VERIFYING), (Apply, Phase.STAGING), REVERT, DEGRADED}),
        (Apply, Phase.STAGING): frozenset({(Apply, Phase.REBOOTING), REVERT, DEGRADED}),
        # To Rebooting after a soft reboot that did not lead to the new deployment, or to one that works.
        (Apply, Phase.VERIFYING): frozenset(
            {
                (Apply, Phase.RELEASING),
                (Apply, Phase.REBOOTING),
                (Apply, Phase.STAGING),
                (Apply, Phase.WRITING),
                (Fallback, Phase.DRAINING),
                (Fallback, Phase.REBOOTING),
                REVERT,
                DEGRADED,
            }
        ),
        (Apply, Phase.RELEASING): frozenset({IDLE, STILL_RELEASING, UNRELEASED}),
        # To Verifying when the host rebooted during the drain: that boot is what it was drained for.
        (Fallback, Phase.DRAINING): frozenset(
            {(Fallback, Phase.REBOOTING), (Fallback, Phase.VERIFYING), REVERT, DEGRADED}
        ),
        (Fallback, Phase.REBOOTING): frozenset({(Fallback, Phase.VERIFYING), REVERT, DEGRADED}),
        # To Rebooting after a soft reboot that did not help: a full one follows, once.
        (Fallback, Phase.VERIFYING): frozenset(
            {(Fallback, Phase.RELEASING), (Fallback, Phase.REBOOTING), REVERT, DEGRADED}
        ),
        (Fallback, Phase.RELEASING): frozenset({IDLE, STILL_RELEASING, UNRELEASED}),
        # Back to Reverting after the boot into the old deployment, whose files are still to be restored. A revert that
        # fails has no way out but an operator.
        REVERT: frozenset({(Revert, Phase.REBOOTING), (Revert, Phase.VERIFYING), DEGRADED}),
        (Revert, Phase.REBOOTING): frozenset({(Revert, Phase.VERIFYING), REVERT, DEGRADED}),
        (Revert, Phase.VERIFYING): frozenset({(Revert, Phase.RELEASING), DEGRADED}),
        # To Idle when an operator cancelled the update, or another config is desired.
        (Revert, Phase.RELEASING): frozenset({IDLE, DEGRADED, STILL_RELEASING, UNRELEASED}),
        UNRELEASED: frozenset({STILL_RELEASING}),
        STILL_RELEASING: frozenset({IDLE, DEGRADED, UNRELEASED}),
    }
)
