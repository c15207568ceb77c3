from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.update.failure import Answer, after_failure
from nodeagent.core.update.phase import NEXT, Phase
from nodeagent.core.update.record import Record

flag = st.booleans()


@given(st.sampled_from(Phase), flag, flag, flag, flag, st.text(max_size=3), st.integers(0, 3), flag)
def test_never_a_second_reboot(
    phase: Phase, curable: bool, planned: bool, may: bool, revert: bool, fallback: str, reboots: int, reverting: bool
) -> None:
    record = Record(phase=phase, fallback=fallback, reboots=reboots, reverting=reverting)
    answer = after_failure(record, curable=curable, planned_reboot=planned, may_reboot=may, revert=revert)
    if answer is Answer.REBOOT:
        assert not (fallback or reboots or planned or reverting)
        assert curable
        assert may
        assert {Phase.REBOOTING, Phase.DRAINING} <= NEXT[phase]
    if reverting or Phase.REVERTING not in NEXT[phase]:
        assert answer is Answer.DEGRADE
    elif answer is not Answer.REBOOT:
        assert answer is (Answer.REVERT if revert else Answer.DEGRADE)


def test_a_failed_action_reboots_first() -> None:
    answer = after_failure(Record(phase=Phase.ACTING), curable=True, planned_reboot=False, may_reboot=True, revert=True)
    assert answer is Answer.REBOOT
    for phase in set(Phase) - {Phase.ACTING, Phase.VERIFYING}:
        answer = after_failure(Record(phase=phase), curable=True, planned_reboot=False, may_reboot=True, revert=True)
        assert answer is not Answer.REBOOT, "nothing was started yet that a reboot would start"
