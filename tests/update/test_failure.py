# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.boot import RebootKind
from nodeagent.update.course import Failure
from nodeagent.update.decide import after_failure
from nodeagent.update.record import Record
from nodeagent.update.states import Apply, Fallback, Phase, Revert
from tests.update.table import NEXT
from tests.update.test_states import LEGS, at

flag = st.booleans()


@given(st.sampled_from(list(NEXT)), flag, flag, flag, flag, st.sampled_from(["", "late"]), st.integers(0, 3))
def test_never_a_second_reboot(
    state: object, curable: bool, planned: bool, may: bool, revert: bool, instead: str, reboots: int
) -> None:
    """The legs of ``LEGS`` have full reboots."""
    record = at(state)  # type: ignore[arg-type]
    if isinstance(record.leg, Apply):
        record = Record(record.phase, Apply(boots=reboots, reboot_instead=instead))
    response = after_failure(record, curable=curable, planned_reboot=planned, may_reboot=may, revert=revert)
    here = type(record.leg), record.phase
    match response:
        case Failure.REBOOT:
            assert isinstance(record.leg, Apply)
            assert not (instead or reboots or planned)
            assert curable
            assert may
            assert {(Fallback, Phase.REBOOTING), (Fallback, Phase.DRAINING)} <= NEXT[here]
        case Failure.REVERT:
            assert revert
            assert (Revert, Phase.REVERTING) in NEXT[here]
        case Failure.DEGRADE:
            assert not revert or (Revert, Phase.REVERTING) not in NEXT[here] or isinstance(record.leg, Revert)


def test_a_failed_action_reboots_first() -> None:
    """Before these two phases nothing was started that a reboot would start."""
    cured = {
        state
        for state in NEXT
        if after_failure(at(state), curable=True, planned_reboot=False, may_reboot=True, revert=True) is Failure.REBOOT
    }
    assert cured == {(Apply, Phase.ACTING), (Apply, Phase.VERIFYING)}
    assert isinstance(LEGS[Apply], Apply)


@given(st.sampled_from(list(NEXT)), st.sampled_from(RebootKind), st.sampled_from(["", "it failed"]), flag, flag, flag)
def test_a_full_reboot_follows_a_soft_one_once(
    state: object, kind: RebootKind, failed: str, curable: bool, may: bool, revert: bool
) -> None:
    record = at(state)  # type: ignore[arg-type]
    if not isinstance(record.leg, Fallback):
        return
    record = Record(record.phase, Fallback(boots=1, kind=kind, soft_failed=failed))
    response = after_failure(record, curable=curable, planned_reboot=False, may_reboot=may, revert=revert)
    due = record.phase is Phase.VERIFYING and kind is RebootKind.SOFT and not failed and curable and may
    assert (response is Failure.REBOOT) == due
    if due:
        assert (Fallback, Phase.REBOOTING) in NEXT[Fallback, Phase.VERIFYING]


@given(st.sampled_from(list(NEXT)), st.sampled_from(RebootKind), st.sampled_from(["", "it failed"]), flag, flag, flag)
def test_a_full_reboot_follows_a_planned_soft_one_once(
    state: object, kind: RebootKind, failed: str, curable: bool, may: bool, revert: bool
) -> None:
    record = at(state)  # type: ignore[arg-type]
    if not isinstance(record.leg, Apply):
        return
    record = Record(record.phase, Apply(boots=1, kind=kind, soft_failed=failed))
    response = after_failure(record, curable=curable, planned_reboot=True, may_reboot=may, revert=revert)
    due = record.phase is Phase.VERIFYING and kind is RebootKind.SOFT and not failed and curable and may
    assert (response is Failure.REBOOT) == due
    if due:
        assert (Apply, Phase.REBOOTING) in NEXT[Apply, Phase.VERIFYING]
