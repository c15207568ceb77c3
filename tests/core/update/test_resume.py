"""The whole table: every phase, in the same boot and in another one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.update.phase import Phase
from nodeagent.core.update.record import Record
from nodeagent.core.update.resume import MAX_REBOOT_TRIES, Decision, resume

TABLE = {
    Phase.IDLE: (Decision.IDLE, Decision.IDLE),
    Phase.STAGING: (Decision.START_OVER, Decision.START_OVER),
    Phase.LEASING: (Decision.START_OVER, Decision.START_OVER),
    Phase.DRAINING: (Decision.DRAIN, Decision.START_OVER),
    Phase.WRITING: (Decision.WRITE, Decision.WRITE),
    Phase.ACTING: (Decision.ACT, Decision.VERIFY),
    Phase.VERIFYING: (Decision.VERIFY, Decision.VERIFY),
    Phase.REBOOTING: (Decision.REBOOT_AGAIN, Decision.VERIFY),
    Phase.REVERTING: (Decision.REVERT, Decision.REVERT),
    Phase.RELEASING: (Decision.RELEASE, Decision.RELEASE),
    Phase.DEGRADED: (Decision.DEGRADED, Decision.DEGRADED),
}


@pytest.mark.parametrize("phase", list(Phase))
def test_table(phase: Phase) -> None:
    record = Record(phase=phase, boot_id="one")
    assert (resume(record, "one"), resume(record, "two")) == TABLE[phase]


def test_staging_with_the_files_written_is_done_again() -> None:
    record = Record(phase=Phase.STAGING, boot_id="one", acted=True)
    assert {resume(record, "one"), resume(record, "two")} == {Decision.STAGE}


def test_a_boot_in_the_drain_of_a_fallback_reboot_is_that_reboot() -> None:
    record = Record(phase=Phase.DRAINING, boot_id="one", acted=True, fallback="app.service failed")
    assert (resume(record, "one"), resume(record, "two")) == (Decision.DRAIN, Decision.VERIFY)


def test_a_boot_in_acting_does_not_bring_another_os() -> None:
    record = Record(phase=Phase.ACTING, boot_id="one", acted=True, os_target={"image": ""})
    assert {resume(record, "one"), resume(record, "two")} == {Decision.ACT}


def test_the_way_back_goes_on_in_the_old_deployment() -> None:
    record = Record(phase=Phase.REBOOTING, boot_id="one", reverting=True)
    assert (resume(record, "one"), resume(record, "two")) == (Decision.REBOOT_AGAIN, Decision.REVERT)
    assert resume(replace(record, restored=True), "two") is Decision.VERIFY


records = st.builds(
    Record,
    phase=st.sampled_from(Phase),
    boot_id=st.sampled_from(["one", "two"]),
    acted=st.booleans(),
    reverting=st.booleans(),
    restored=st.booleans(),
    rolled_back=st.booleans(),
    merged=st.booleans(),
    tries=st.integers(0, 4),
    os_target=st.none() | st.just({"image": ""}),
)


@given(records)
def test_nothing_that_was_written_is_forgotten(record: Record) -> None:
    """Whoever has written something goes on, forward or back; and who goes back never turns round."""
    decision = resume(record, "one")
    wrote = record.phase in (Phase.WRITING, Phase.ACTING, Phase.VERIFYING, Phase.REBOOTING, Phase.REVERTING)
    if wrote or (record.phase in (Phase.STAGING, Phase.DRAINING) and record.acted):
        assert decision not in (Decision.IDLE, Decision.START_OVER)
    if record.phase is Phase.REBOOTING and record.reverting:
        assert decision in (Decision.REVERT, Decision.VERIFY, Decision.REBOOT_AGAIN, Decision.REBOOT_FAILED)
        assert decision is not Decision.VERIFY or record.restored


SOFT = {
    # The identity after a soft reboot: what services need, and what the kernel needs.
    Phase.IDLE: (Decision.IDLE, Decision.IDLE),
    Phase.STAGING: (Decision.START_OVER, Decision.START_OVER),
    Phase.LEASING: (Decision.START_OVER, Decision.START_OVER),
    Phase.DRAINING: (Decision.START_OVER, Decision.DRAIN),
    Phase.WRITING: (Decision.WRITE, Decision.WRITE),
    Phase.ACTING: (Decision.VERIFY, Decision.ACT),
    Phase.VERIFYING: (Decision.VERIFY, Decision.VERIFY),
    Phase.REBOOTING: (Decision.VERIFY, Decision.REBOOT_AGAIN),
    Phase.REVERTING: (Decision.REVERT, Decision.REVERT),
    Phase.RELEASING: (Decision.RELEASE, Decision.RELEASE),
    Phase.DEGRADED: (Decision.DEGRADED, Decision.DEGRADED),
}
PLAN = {"actions": [{"type": "Reboot", "because": ["file:/etc/sysctl.d/x.conf"]}]}


@pytest.mark.parametrize("before", ["one", "one+1"])
@pytest.mark.parametrize("phase", list(Phase))
def test_table_of_a_soft_reboot(phase: Phase, before: str) -> None:
    services = Record(phase=phase, boot_id=before)
    of_the_kernel = (replace(services, plan=PLAN), replace(services, os_target={"image": ""}))
    assert resume(services, "one+2") == SOFT[phase][0]
    assert {resume(record, "one+2") for record in of_the_kernel} == {SOFT[phase][1]}


def test_a_soft_reboot_is_not_the_way_into_the_old_deployment() -> None:
    record = Record(phase=Phase.REBOOTING, boot_id="one", reverting=True, os_target={"image": ""})
    assert resume(record, "one+1") is Decision.REBOOT_AGAIN
    assert resume(record, "two") is Decision.REVERT


def test_a_reboot_that_never_comes_is_not_asked_for_for_ever() -> None:
    record = Record(phase=Phase.REBOOTING, boot_id="one", tries=MAX_REBOOT_TRIES)
    assert resume(record, "one") is Decision.REBOOT_FAILED
    assert resume(record, "two") is Decision.VERIFY
