# SPDX-License-Identifier: Apache-2.0
"""The states of an update: a leg, which is its direction, and a phase. No other state can be recorded.

A leg is a type that holds exactly the data that is valid in it.

An update prepares, applies and releases. What goes wrong leads into another leg: before the first write it is aborted;
after it, a fallback reboot is tried, or the update is reverted. Values of two legs cannot be in one record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final

from nodeagent.core.boot import RebootKind
from nodeagent.reasons import Reason
from nodeagent.update.history.outcome import UpdateOutcome


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


# Reason of an abort after which the update begins again under the same id, if its config is still desired.
INTERRUPTED = "Interrupted"

# Reason of an abort after which something else is done: the parts of the config that need no disruption are applied, or
# the host is rebooted on request. Then it begins again.
OTHER_FIRST = "SafePartsFirst"


@dataclass(frozen=True, slots=True)
class Rest:
    """No update is under way."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Nothing on the host was changed yet. The node may be staged, leased and drained."""


@dataclass(frozen=True, slots=True)
class Abort:
    """The update ends although nothing was written, and gives back what it took.

    ``successor`` names the config that is desired instead, if that is why.
    """

    reason: str
    message: str = ""
    successor: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """The data that all legs after the first write have.

    Services of boots later than ``first_write_boot_id`` may have read the new files. ``boots`` counts the boots since
    the first write, whatever their cause. ``requested_reboots`` of them followed an accepted request of the agent, and
    ``soft_reboots`` of those started the services and no kernel. ``done`` and ``skipped`` are ids of action steps.
    ``restarting`` is the id of a restart that was begun and is not done, and ``invocation`` the invocation of its unit
    from before: another one means that the unit was restarted. ``runs`` has the invocations of the units that run and
    are to be restarted, from before the first restart: systemd restarts a unit along with one that it requires.
    """

    first_write_boot_id: str = ""
    boots: int = 0
    done: frozenset[str] = frozenset()
    skipped: frozenset[str] = frozenset()
    restarting: str = ""
    invocation: str = ""
    runs: Mapping[str, str] = field(default_factory=dict)
    requested_reboots: int = 0
    soft_reboots: int = 0


@dataclass(frozen=True, slots=True)
class Apply(Written):
    """Write, act, verify.

    ``reboot_instead`` says why a reboot takes the place of the actions: the drain was not complete in time. With
    ``etc_merge_repaired``, what the merge of /etc took back was written again, which is done once.

    ``kind`` is that of the planned reboot: soft only where it was chosen and took place so. ``soft_failed`` as in
    ``Fallback``.
    """

    reboot_instead: str = ""
    etc_merge_repaired: bool = False
    kind: RebootKind = RebootKind.FULL
    soft_failed: str = ""


@dataclass(frozen=True, slots=True)
class Fallback(Written):
    """A reboot that the plan does not have, because of a failure.

    The loop breaker: an update has one at most, or a soft one and then a full one.

    ``kind`` is that of the reboot that is requested, or that took place last. ``soft_failed`` is why the full reboot
    follows a soft one; "" if it does not. After it there is no other reboot.
    """

    because: str = ""
    kind: RebootKind = RebootKind.FULL
    soft_failed: str = ""


@dataclass(frozen=True, slots=True)
class Revert(Written):
    """Everything is made as it was before the update. The message is that of the rejection.

    ``undo_actions``: some action may have run with the new config, so the actions run again with the old one.
    ``restored``: files, units and users are as before. ``rolled_back``: the old deployment is first in the boot order.
    ``fallback`` is why there was a fallback reboot before; "" if there was none.
    """

    reason: str = ""
    undo_actions: bool = False
    restored: bool = False
    rolled_back: bool = False
    fallback: str = ""


@dataclass(frozen=True, slots=True)
class Unreleased:
    """The end of the update is reported, but what it took could not be given back yet. ``leg`` is the one it ended
    in."""

    leg: Abort | Apply | Fallback | Revert


Leg = Rest | Prepare | Abort | Apply | Fallback | Revert | Unreleased


State = tuple[type[Leg], Phase]

IDLE: Final[State] = (Rest, Phase.IDLE)
DEGRADED: Final[State] = (Rest, Phase.DEGRADED)
ABORT: Final[State] = (Abort, Phase.RELEASING)
REVERT: Final[State] = (Revert, Phase.REVERTING)
UNRELEASED: Final[State] = (Unreleased, Phase.DEGRADED)
STILL_RELEASING: Final[State] = (Unreleased, Phase.RELEASING)


def fallback_of(leg: Written, because: str, kind: RebootKind = RebootKind.FULL) -> Fallback:
    """Return the fallback that follows ``leg``."""
    return Fallback(**_progress(leg), because=because, kind=kind)


def revert_of(leg: Written, reason: str, *, undo_actions: bool, fallback: str) -> Revert:
    """Return the revert that follows ``leg``. The actions that were done are to be done again."""
    progress = _progress(leg) | {"done": frozenset(), "restarting": "", "invocation": "", "runs": {}}
    return Revert(**progress, reason=reason, undo_actions=undo_actions, fallback=fallback)


def _progress(leg: Written) -> dict[str, Any]:
    # ``dataclasses.replace`` keeps the class, and another leg is another class.
    return {one.name: getattr(leg, one.name) for one in fields(Written)}


class Superseded(Exception):
    """Another config is desired by now, and nothing was written yet."""


@dataclass(frozen=True, slots=True)
class HowEnded:
    """How an update ended, as its entry in the history has it."""

    outcome: UpdateOutcome
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Transition:
    """The next state of an update. ``leg`` None is the same leg.

    ``end`` is the end of the update, where this state is one. ``rejects`` is the reason for which its config is applied
    on request only from now on; "" if it is not rejected. What both lead to is decided by the machine.
    """

    phase: Phase
    leg: Leg | None = None
    reason: str = ""
    message: str = ""
    end: HowEnded | None = None
    rejects: str = ""
