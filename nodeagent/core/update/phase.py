"""The phases of an update as a table: which may follow which, and how long each may last.

The figures in docs/explanation/state-machine.md are generated from ``NEXT``, so it cannot drift from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

__all__ = ["BY_PROGRESS", "DEADLINE", "DISRUPTIVE", "NEXT", "UNTOUCHED", "Phase", "graph"]


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
    REVERTING = "Reverting"
    RELEASING = "Releasing"
    DEGRADED = "Degraded"


NEXT: Mapping[Phase, frozenset[Phase]] = MappingProxyType(
    {
        Phase.IDLE: frozenset({Phase.STAGING, Phase.LEASING, Phase.DEGRADED}),
        # Back from Rebooting or Verifying when the staged deployment was lost: then the files are written already, the
        # lease is ours, and the way out is a reboot or a revert. Otherwise nothing was touched.
        Phase.STAGING: frozenset({Phase.LEASING, Phase.REBOOTING, Phase.REVERTING, Phase.RELEASING, Phase.DEGRADED}),
        # Up to Draining nothing on the host was changed, so a newer desired config takes over when all is given back.
        Phase.LEASING: frozenset({Phase.DRAINING, Phase.WRITING, Phase.RELEASING, Phase.DEGRADED}),
        # To Rebooting, or back, when the drain is that of a fallback reboot.
        Phase.DRAINING: frozenset(
            {Phase.WRITING, Phase.RELEASING, Phase.REBOOTING, Phase.REVERTING, Phase.VERIFYING, Phase.DEGRADED}
        ),
        # The first byte written is the point of no return for a half-way stop: from here on we finish or revert.
        Phase.WRITING: frozenset({Phase.ACTING, Phase.REVERTING, Phase.DEGRADED}),
        Phase.ACTING: frozenset({Phase.VERIFYING, Phase.DRAINING, Phase.REBOOTING, Phase.REVERTING, Phase.DEGRADED}),
        # To Writing when the merge of /etc into a new deployment took something of the config back.
        Phase.VERIFYING: frozenset(
            {
                Phase.RELEASING,
                Phase.DRAINING,
                Phase.REBOOTING,
                Phase.REVERTING,
                Phase.STAGING,
                Phase.WRITING,
                Phase.DEGRADED,
            }
        ),
        # To Reverting after the boot into the old deployment, whose files are still to be restored.
        Phase.REBOOTING: frozenset({Phase.VERIFYING, Phase.STAGING, Phase.REVERTING, Phase.DEGRADED}),
        Phase.REVERTING: frozenset({Phase.REBOOTING, Phase.VERIFYING, Phase.DEGRADED}),
        Phase.RELEASING: frozenset({Phase.IDLE, Phase.DEGRADED}),
        # To Releasing when an update that has ended could not give everything back.
        Phase.DEGRADED: frozenset({Phase.IDLE, Phase.STAGING, Phase.LEASING, Phase.RELEASING}),
    }
)

UNTOUCHED = frozenset({Phase.STAGING, Phase.LEASING, Phase.DRAINING})
"""Phases in which nothing on the host was changed yet, unless the record says that it acted."""

DISRUPTIVE = frozenset({Phase.DRAINING, Phase.WRITING, Phase.ACTING, Phase.VERIFYING, Phase.REBOOTING, Phase.REVERTING})
"""Phases in which we must hold the node lease."""

DEADLINE: Mapping[Phase, float | None] = MappingProxyType(
    {
        Phase.IDLE: None,
        Phase.STAGING: 3 * 3600.0,  # an image over a slow link; without progress it ends after an hour
        Phase.LEASING: None,  # somebody else's maintenance lasts as long as it lasts; status says who
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


def graph() -> str:
    """``NEXT`` as a Mermaid state diagram, for the docs."""
    lines = ["stateDiagram-v2", "    [*] --> Idle"]
    for phase in Phase:
        lines += [f"    {phase} --> {after}" for after in sorted(NEXT[phase])]
    return "\n".join(lines)
