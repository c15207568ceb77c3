# SPDX-License-Identifier: Apache-2.0
"""What a cancellation does in each state of an update: the whole table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodeagent.errors import Refused
from nodeagent.update.decide import Cancellation, cancellation
from nodeagent.update.record import OsProgress, Record
from nodeagent.update.states import Abort, Apply, Fallback, Leg, Phase, Prepare, Rest, Revert, Unreleased
from tests.update.table import NEXT

LEGS: dict[type[Leg], Leg] = {
    Rest: Rest(),
    Prepare: Prepare(),
    Abort: Abort("Superseded"),
    Apply: Apply("boot-1"),
    Fallback: Fallback("boot-1", because="late"),
    Revert: Revert("boot-1", reason="VerifyFailed"),
    Unreleased: Unreleased(Abort("Superseded")),
}
# Without a reboot so far.
TABLE = {
    (Rest, Phase.IDLE): "NoUpdate",
    (Rest, Phase.DEGRADED): "NoUpdate",
    (Prepare, Phase.STAGING): "end",
    (Prepare, Phase.LEASING): "end",
    (Prepare, Phase.DRAINING): "end",
    (Abort, Phase.RELEASING): "end",
    (Apply, Phase.WRITING): "revert",
    (Apply, Phase.ACTING): "revert",
    (Apply, Phase.REBOOTING): "revert",
    (Apply, Phase.STAGING): "revert",
    (Apply, Phase.VERIFYING): "revert",
    (Apply, Phase.RELEASING): "CancelTooLate",
    (Fallback, Phase.DRAINING): "revert",
    (Fallback, Phase.REBOOTING): "revert",
    (Fallback, Phase.VERIFYING): "revert",
    (Fallback, Phase.RELEASING): "CancelTooLate",
    (Revert, Phase.REVERTING): "reverting",
    (Revert, Phase.REBOOTING): "reverting",
    (Revert, Phase.VERIFYING): "reverting",
    (Revert, Phase.RELEASING): "NoUpdate",
    (Unreleased, Phase.DEGRADED): "NoUpdate",
    (Unreleased, Phase.RELEASING): "NoUpdate",
}


def effect(record: Record, *, committed: bool = False) -> str:
    try:
        return cancellation(record, committed=committed)
    except Refused as error:
        return str(error.reason)


def test_the_table_has_every_state() -> None:
    assert TABLE.keys() == NEXT.keys()


@pytest.mark.parametrize("state", TABLE, ids=lambda state: f"{state[0].__name__}-{state[1]}")
def test_each_state(state: tuple[type[Leg], Phase]) -> None:
    assert effect(Record(state[1], LEGS[state[0]], to_name="b")) == TABLE[state]


@pytest.mark.parametrize("state", [state for state, what in TABLE.items() if what == "revert"])
def test_a_requested_reboot_is_too_late(state: tuple[type[Leg], Phase]) -> None:
    assert effect(Record(state[1], LEGS[state[0]], to_name="b"), committed=True) == "CancelTooLate"


def test_after_a_planned_reboot_it_is_too_late() -> None:
    record = Record(Phase.VERIFYING, Apply("boot-1", boots=1), to_name="b")
    assert effect(replace(record, plan={"actions": [{"type": "Reboot"}]})) == "CancelTooLate"
    restarts = {"actions": [{"type": "Restart", "unit": "app.service"}]}
    assert effect(replace(record, plan=restarts)) == "revert", "the host rebooted, but the plan does not need that"


def test_in_another_deployment_it_is_too_late() -> None:
    record = Record(Phase.VERIFYING, Apply("boot-1", boots=1), to_name="b", os=OsProgress(target={}))
    assert effect(record) == "CancelTooLate"


def test_an_update_that_a_restart_interrupted_ends() -> None:
    assert effect(Record(update_id="u")) == Cancellation.END
