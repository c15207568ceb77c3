# SPDX-License-Identifier: Apache-2.0
"""The one judge of a unit: after its job, while it is watched after a restart, after a boot and after a revert.

Facts in, a verdict out. What was not running before the update need not run after it; everything else has to, whatever
starts it. Exceptions are the rules of systemd: a start condition that is not met, a unit that is started on demand, and
a oneshot that has ended with success.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from nodeagent.core.enumerated import enumerated
from nodeagent.update.ports.host import DOWN, UP, UnitState

# The state before the update of a oneshot that has ended with success, or was not started yet.
FINISHED: Final = "finished"

# Types of services that report when they are ready: their start is no success before that.
_READY: Final = frozenset({"notify", "notify-reload", "forking", "dbus"})
# Names in a message.
_SHOWN: Final = 5


class Health(StrEnum):
    GOOD = "good"
    BAD = "bad"
    # It may become good within the time for verification.
    NOT_YET = "not yet"


@dataclass(frozen=True, slots=True)
class JudgedUnit:
    """``before`` is the state of the unit before the update, "" for a unit that did not exist. ``due``: it has to come
    up although it did not run. ``touched``: the update added, changed or enabled it, or acts on it.

    After a boot (``rebooted``, ``booted`` when that is complete): ``behind`` are the units whose start waits for this
    one, ``failed_needs`` failed units that it needs, and ``wanted``: a unit that runs starts it with itself.
    """

    state: UnitState
    before: str = ""
    due: bool = False
    touched: bool = False
    rebooted: bool = False
    booted: bool = True
    wanted: bool = False
    behind: tuple[str, ...] = ()
    failed_needs: tuple[str, ...] = ()

    @property
    def expected(self) -> bool:
        """Whether the unit has to be well after the update."""
        return must_run(self.before, due=self.due)


@dataclass(frozen=True, slots=True)
class UnitVerdict:
    """``at_end`` is what ``NOT_YET`` becomes when the time is over. ``why`` is a note if the end is good."""

    health: Health
    why: str = ""
    at_end: Health = Health.BAD


GOOD: Final = UnitVerdict(Health.GOOD)


def must_run(before: str, *, due: bool) -> bool:
    """Return whether a unit with this state before the update has to be well after it."""
    return due or before not in DOWN


def restarting(state: UnitState) -> bool:
    """Return whether systemd starts a unit again that has ended (``Restart=``)."""
    return "auto-restart" in state.sub


def state_before(state: UnitState) -> str:
    """Return the state of a unit before the update, as the record keeps it."""
    # Between two attempts of Restart= a unit is activating, although its program has ended.
    if restarting(state):
        return "failed"
    ended = state.type == "oneshot" and state.active == "inactive" and state.result == "success"
    return FINISHED if ended and not state.condition else state.active


def judge(facts: JudgedUnit) -> UnitVerdict:
    """Return the health of a unit, and the cause if it is not good."""
    state = facts.state
    name = state.name
    if state.load in ("not-found", "masked") or state.active in UP:
        return GOOD
    if not facts.expected and (state.active in DOWN or restarting(state)):
        return GOOD
    if restarting(state):
        return UnitVerdict(Health.NOT_YET, f"{name} died and is being restarted ({state.how})")
    match state.active:
        case "failed":
            return UnitVerdict(Health.BAD, f"{name} failed ({state.how})")
        case "inactive":
            return _inactive(facts)
        case "activating":
            return _activating(facts)
        case _:
            return UnitVerdict(Health.NOT_YET, f"{name} is {state.active}")


def _inactive(facts: JudgedUnit) -> UnitVerdict:
    state = facts.state
    name, success = state.name, state.result in ("", "success")
    if state.condition:
        # systemd does not start the unit, and the job counts as done.
        return GOOD
    # The invocation shows that a oneshot ran in this boot.
    if state.type == "oneshot" and success and (state.invocation_id or not facts.rebooted):
        return GOOD
    if success and (state.triggered_by or (state.bus_name and not facts.wanted)):
        # It is started on demand, and may end again.
        return GOOD
    if not facts.rebooted:
        return UnitVerdict(Health.BAD, f"{name} stopped ({state.how})")
    if facts.failed_needs:
        return UnitVerdict(Health.BAD, f"{name} is inactive, because {enumerated(facts.failed_needs, _SHOWN)} failed")
    ran = facts.before not in ("", FINISHED, *DOWN)
    if not facts.booted:
        # Its turn in the boot may not have come.
        return UnitVerdict(Health.NOT_YET, f"{name} is inactive", Health.BAD if ran else Health.GOOD)
    if ran:
        return UnitVerdict(Health.BAD, f"{name} ran before the reboot and is inactive")
    return UnitVerdict(Health.BAD, f"{name} is inactive") if facts.wanted else GOOD


def _activating(facts: JudgedUnit) -> UnitVerdict:
    state, behind = facts.state, facts.behind
    waiting = f", and the start of {enumerated(behind, _SHOWN)} waits for it" if behind else ""
    message = f"{state.name} is still starting{waiting}"
    if facts.expected and state.restarts:
        # The end of the time may fall between two restarts of a unit that never stays up.
        return UnitVerdict(Health.NOT_YET, f"{message}, and systemd restarted it {state.restarts} times")
    if state.type == "oneshot":
        bad = facts.touched and bool(behind)
    else:
        bad = facts.touched and (bool(behind) or state.type in _READY)
    return UnitVerdict(Health.NOT_YET, message, Health.BAD if bad else Health.GOOD)
