# SPDX-License-Identifier: Apache-2.0
"""The kind of a reboot as it was chosen, and as a plan shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nodeagent.core.boot import RebootKind
from nodeagent.core.plan.change import ActionType, Plan


@dataclass(frozen=True, slots=True)
class ChosenKind:
    """The kind, and why it is not soft; "" for a soft one.

    ``kind`` is None if it is decided later, and ``why`` says when. ``reason`` is "" if the setting decides. ``because``
    has the ids of the changes that decide. ``saves`` are the seconds that a soft reboot does not take, None if they are
    not known.
    """

    kind: RebootKind | None
    why: str = ""
    reason: str = ""
    because: tuple[str, ...] = ()
    saves: float | None = None


def may_fall_back(plan: Plan) -> bool:
    """Return whether a failure of an update with this plan may lead to a fallback reboot."""
    return not plan.reboot and any(action.type is not ActionType.NONE for action in plan.actions)


def chosen_to_dict(chosen: ChosenKind) -> dict[str, Any]:
    """Return the key ``fallback`` or ``reboot`` of a plan."""
    return {
        "kind": "undecided" if chosen.kind is None else str(chosen.kind),
        **({"why": chosen.why} if chosen.why else {}),
        **({"reason": str(chosen.reason)} if chosen.reason else {}),
        **({"because": list(chosen.because)} if chosen.because else {}),
        **({"saves_seconds": round(chosen.saves, 1)} if chosen.saves is not None else {}),
    }
