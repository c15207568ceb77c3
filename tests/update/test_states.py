# SPDX-License-Identifier: Apache-2.0
"""The table of states, and ``advance``, the only writer of the phase."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import nodeagent
from nodeagent.update.course import DISRUPTIVE
from nodeagent.update.history.lasting import Confirmation, Lasting
from nodeagent.update.record import IllegalTransition, OsProgress, Record, advance, after_boot, half_way
from nodeagent.update.states import (
    INTERRUPTED,
    Abort,
    Apply,
    Fallback,
    Leg,
    Phase,
    Prepare,
    Rest,
    Revert,
    State,
    Unreleased,
)
from tests.update.table import NEXT

LEGS: dict[type[Leg], Leg] = {
    Rest: Rest(),
    Prepare: Prepare(),
    Abort: Abort("Superseded"),
    Apply: Apply(),
    Fallback: Fallback(),
    Revert: Revert(),
    Unreleased: Unreleased(Apply()),
}


def name(state: State) -> str:
    return f"{state[0].__name__} {state[1]}"


def at(state: State) -> Record:
    return Record(state[1], LEGS[state[0]], reboot_requests=3, message="old", update_id="u")


def test_every_phase_has_a_leg_and_a_deadline() -> None:
    assert {phase for _, phase in NEXT} == set(Phase)
    assert {leg for leg, _ in NEXT} == set(LEGS)


def test_every_state_can_be_reached_and_left() -> None:
    assert {after for targets in NEXT.values() for after in targets} == set(NEXT)
    assert all(NEXT.values())


@pytest.mark.parametrize("state", list(NEXT), ids=name)
def test_idle_is_reachable_from_everywhere(state: State) -> None:
    seen, todo = {state}, [state]
    while todo:
        for after in NEXT[todo.pop()] - seen:
            seen.add(after)
            todo.append(after)
    assert (Rest, Phase.IDLE) in seen


def test_a_disruptive_phase_is_left_only_through_a_release_or_degraded() -> None:
    """The lease is not forgotten: Idle has no edge from a phase that wrote something."""
    wrote = DISRUPTIVE - {Phase.DRAINING}
    assert not [state for state in NEXT if state[1] in wrote and (Rest, Phase.IDLE) in NEXT[state]]


def test_no_leg_after_the_first_write_leads_to_one_before_it() -> None:
    for state, targets in NEXT.items():
        if state[0] in (Apply, Fallback, Revert):
            assert not {leg for leg, _ in targets} & {Prepare, Abort}


def test_a_revert_never_turns_round_and_a_fallback_is_the_only_one() -> None:
    for state, targets in NEXT.items():
        if state[0] is Revert:
            assert {leg for leg, _ in targets} <= {Revert, Rest, Unreleased}
        if state[0] is Fallback:
            assert Apply not in {leg for leg, _ in targets}


@pytest.mark.parametrize("start", list(NEXT), ids=name)
@pytest.mark.parametrize("to", list(NEXT), ids=name)
def test_advance_follows_the_table(start: State, to: State) -> None:
    record = at(start)
    if to in NEXT[start]:
        after = advance(record, to[1], LEGS[to[0]], now="2026-01-01T00:00:00Z", boot_id="b", reason="Why")
        assert (after.phase, after.leg, after.reason, after.message) == (to[1], LEGS[to[0]], "Why", "")
        assert (after.reboot_requests, after.boot_id) == (0, "b")
    else:
        with pytest.raises(IllegalTransition, match=f"{start[1]} -> {to[1]}"):
            advance(record, to[1], LEGS[to[0]], now="", boot_id="")


@pytest.mark.parametrize("leg", list(LEGS))
@pytest.mark.parametrize("phase", list(Phase))
def test_a_leg_has_only_its_phases(leg: type[Leg], phase: Phase) -> None:
    if (leg, phase) in NEXT:
        assert Record(phase, LEGS[leg]).phase is phase
    else:
        with pytest.raises(ValueError, match=f"{leg.__name__} has no phase {phase}"):
            Record(phase, LEGS[leg])


FULL = {
    "update_id": "u",
    "to_digest": "d",
    "to_name": "n",
    "cordon": "u",
    "lasting": Lasting(rolled_back_digest="r"),
    "os": OsProgress({"image": ""}, "o.0", "s.0", "b", 1, 2, "b"),
    "unfinished": ("x",),
}


def ended(state: State, leg: Leg, phase: Phase) -> Record:
    return advance(Record(state[1], leg, **FULL), phase, Rest(), now="t", boot_id="b")


@pytest.mark.parametrize("leg", [Apply(), Fallback(), Unreleased(Apply())], ids=lambda leg: type(leg).__name__)
def test_an_update_that_is_done_leaves_what_lasts(leg: Leg) -> None:
    rest = ended((type(leg), Phase.RELEASING), leg, Phase.IDLE)
    assert rest == Record(since="t", boot_id="b", lasting=FULL["lasting"])


def test_what_was_confirmed_for_another_config_outlives_the_update() -> None:
    def confirmed(digest: str) -> Confirmation | None:
        record = Record(Phase.RELEASING, Apply(), **FULL | {"lasting": Lasting(confirmed=Confirmation(digest))})
        return advance(record, Phase.IDLE, Rest(), now="t", boot_id="b").lasting.confirmed

    assert (confirmed("d"), confirmed("other")) == (None, Confirmation("other"))


@pytest.mark.parametrize("phase", [Phase.IDLE, Phase.DEGRADED])
def test_an_aborted_update_leaves_what_is_still_staged_or_held(phase: Phase) -> None:
    rest = ended((Abort, Phase.RELEASING), Abort("Superseded"), phase)
    assert (rest.update_id, rest.to_digest, rest.cordon, rest.unfinished) == ("", "", "u", ("x",))
    assert rest.os == OsProgress({"image": ""}, staged="s.0", staged_boot_id="b")
    assert rest.to_name == ("n" if phase is Phase.DEGRADED else "")


def test_an_interrupted_update_keeps_its_identity() -> None:
    rest = ended((Abort, Phase.RELEASING), Abort(INTERRUPTED), Phase.IDLE)
    assert (rest.update_id, rest.to_digest, rest.lasting) == ("u", "d", FULL["lasting"])


def test_an_update_that_is_degraded_is_half_way() -> None:
    rest = ended((Prepare, Phase.STAGING), Prepare(), Phase.DEGRADED)
    assert (rest.update_id, half_way(rest)) == ("u", True)


def test_a_boot_counts_and_may_be_the_one_that_was_to_come() -> None:
    acting = Record(Phase.ACTING, Apply(boots=1, reboot_instead="late", first_write_boot_id="one"))
    after = after_boot(acting, Phase.VERIFYING, now="t", boot_id="two")
    assert after.leg == Fallback(boots=2, because="late", first_write_boot_id="one")
    again = after_boot(after, Phase.VERIFYING, now="t", boot_id="three")
    assert (again.phase, again.boot_id, again.written.boots) == (Phase.VERIFYING, "three", 3)


def phase_writers() -> Iterator[str]:
    """Functions of the product that make a record with a phase, or one with another phase."""
    root = Path(nodeagent.__file__).parent
    for path in sorted(root.rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                    names = {keyword.arg for keyword in call.keywords}
                    replaces = call.func.id == "replace" and names & {"phase", None} and names & {"leg", "phase"}
                    makes = call.func.id == "Record" and (names & {"phase", None} or call.args)
                    if replaces or makes:
                        yield f"{path.relative_to(root)}:{function.name}"


def test_advance_is_the_only_writer_of_the_phase() -> None:
    assert set(phase_writers()) == {
        "report/views/folding.py:entered",  # the status, not a record
        "report/views/steps.py:_stepped",
        "report/views/ends.py:_refused",
        "update/record.py:advance",
        "update/record.py:degraded_record",  # a record of which nothing else is known
        "host/store/record_codec.py:record_from_dict",
    }
