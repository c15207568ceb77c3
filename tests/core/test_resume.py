"""The whole table: every phase, in the same boot and in another one."""

from __future__ import annotations

import pytest

from nodeagent.core.phase import Phase
from nodeagent.core.record import Record
from nodeagent.core.resume import MAX_REBOOT_TRIES, Decision, resume

TABLE = {
    Phase.IDLE: (Decision.IDLE, Decision.IDLE),
    Phase.STAGING: (Decision.START_OVER, Decision.START_OVER),
    Phase.LEASING: (Decision.START_OVER, Decision.START_OVER),
    Phase.DRAINING: (Decision.START_OVER, Decision.START_OVER),
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


def test_a_reboot_that_never_comes_is_not_asked_for_for_ever() -> None:
    record = Record(phase=Phase.REBOOTING, boot_id="one", tries=MAX_REBOOT_TRIES)
    assert resume(record, "one") is Decision.REBOOT_FAILED
    assert resume(record, "two") is Decision.VERIFY
