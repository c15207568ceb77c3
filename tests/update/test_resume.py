# SPDX-License-Identifier: Apache-2.0
"""The whole table: every state, in the same boot and in another one, and after a soft reboot."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.boot import RebootKind
from nodeagent.update.course import Restart
from nodeagent.update.decide import resume
from nodeagent.update.record import OsProgress, Record, after_boot
from nodeagent.update.states import (
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
    Written,
)
from tests.update.table import NEXT
from tests.update.test_states import LEGS, at, name

# In the same boot, in another one, and after a soft reboot of an update that needs a boot of the kernel.
TABLE: dict[State, tuple[Restart, Restart, Restart]] = {
    (Rest, Phase.IDLE): (Restart.IDLE,) * 3,
    (Rest, Phase.DEGRADED): (Restart.DEGRADED,) * 3,
    (Prepare, Phase.STAGING): (Restart.START_OVER,) * 3,
    (Prepare, Phase.LEASING): (Restart.START_OVER,) * 3,
    (Prepare, Phase.DRAINING): (Restart.DRAIN, Restart.START_OVER, Restart.DRAIN),
    (Abort, Phase.RELEASING): (Restart.RELEASE,) * 3,
    (Apply, Phase.WRITING): (Restart.WRITE,) * 3,
    (Apply, Phase.ACTING): (Restart.ACT, Restart.VERIFY, Restart.ACT),
    (Apply, Phase.REBOOTING): (Restart.REBOOT_AGAIN, Restart.VERIFY, Restart.REBOOT_AGAIN),
    (Apply, Phase.STAGING): (Restart.STAGE,) * 3,
    (Apply, Phase.VERIFYING): (Restart.VERIFY,) * 3,
    (Apply, Phase.RELEASING): (Restart.RELEASE,) * 3,
    (Fallback, Phase.DRAINING): (Restart.DRAIN, Restart.VERIFY, Restart.DRAIN),
    (Fallback, Phase.REBOOTING): (Restart.REBOOT_AGAIN, Restart.VERIFY, Restart.REBOOT_AGAIN),
    (Fallback, Phase.VERIFYING): (Restart.VERIFY,) * 3,
    (Fallback, Phase.RELEASING): (Restart.RELEASE,) * 3,
    (Revert, Phase.REVERTING): (Restart.REVERT,) * 3,
    (Revert, Phase.REBOOTING): (Restart.REBOOT_AGAIN, Restart.REVERT, Restart.REBOOT_AGAIN),
    (Revert, Phase.VERIFYING): (Restart.VERIFY,) * 3,
    (Revert, Phase.RELEASING): (Restart.RELEASE,) * 3,
    (Unreleased, Phase.DEGRADED): (Restart.DEGRADED,) * 3,
    (Unreleased, Phase.RELEASING): (Restart.RELEASE,) * 3,
}
PLAN = {"actions": [{"type": "Reboot", "because": ["file:/etc/sysctl.d/x.conf"]}]}


@pytest.mark.parametrize("state", list(NEXT), ids=name)
def test_table(state: State) -> None:
    record = replace(at(state), boot_id="one", reboot_requests=0)
    assert (resume(record, "one"), resume(record, "two")) == TABLE[state][:2]


@pytest.mark.finding(
    "OS: soft reboots",
    "After a soft reboot by another program, in any phase, the update ends well; what needs the kernel gets a full "
    "reboot.",
)
@pytest.mark.parametrize("before", ["one", "one+1"])
@pytest.mark.parametrize("state", list(NEXT), ids=name)
def test_table_of_a_soft_reboot(state: State, before: str) -> None:
    """A soft reboot is the boot that services need, but not the one that the kernel or the OS need."""
    services = replace(at(state), boot_id=before, reboot_requests=0)
    kernel, os = replace(services, plan=PLAN), replace(services, os=OsProgress({"image": ""}))
    assert resume(services, "one+2") == TABLE[state][1]
    assert {resume(record, "one+2") for record in (kernel, os)} == {TABLE[state][2]}


def test_a_boot_in_acting_does_not_bring_another_os() -> None:
    record = Record(Phase.ACTING, Apply(), boot_id="one", os=OsProgress({"image": ""}))
    assert {resume(record, "one"), resume(record, "two")} == {Restart.ACT}


def test_the_way_back_is_verified_when_everything_is_restored() -> None:
    record = Record(Phase.REBOOTING, Revert(restored=True), boot_id="one")
    assert resume(record, "two") is Restart.VERIFY


flag = st.booleans()
legs = st.one_of(
    st.sampled_from(list(LEGS.values())),
    st.builds(Revert, restored=flag, rolled_back=flag, undo_actions=flag),
    st.builds(Apply, reboot_instead=st.sampled_from(["", "late"]), etc_merge_repaired=flag),
)


@given(legs, st.sampled_from(Phase), st.sampled_from(["one", "two", "one+1"]), st.integers(0, 4), flag)
def test_nothing_that_was_written_is_forgotten(leg: Leg, phase: Phase, boot_id: str, requests: int, os: bool) -> None:
    """An update that wrote something goes on, forward or back; and a revert never turns round."""
    if (type(leg), phase) not in NEXT:
        return
    target = OsProgress({"image": ""} if os else None)
    decision = resume(Record(phase, leg, boot_id="one", reboot_requests=requests, os=target), boot_id)
    if isinstance(leg, Written):
        assert decision not in (Restart.IDLE, Restart.START_OVER, Restart.DEGRADED)
    if isinstance(leg, Revert) and phase is Phase.REBOOTING:
        assert decision in (Restart.REVERT, Restart.VERIFY, Restart.REBOOT_AGAIN)
        assert decision is not Restart.VERIFY or leg.restored


# -- a soft reboot as the fallback -------------------------------------------------------------------------------------

CHANGE = {"actions": [], "changes": [{"domain": "file", "key": "/etc/modprobe.d/x.conf"}]}


@pytest.mark.parametrize("kind", list(RebootKind))
@pytest.mark.parametrize("phase", [phase for leg, phase in NEXT if leg is Fallback])
def test_what_a_soft_reboot_is_worth_in_a_fallback(phase: Phase, kind: RebootKind) -> None:
    """It is the fallback, unless a kernel must start: for an entry, or because a soft one did not help."""
    enough = Record(phase, Fallback(kind=kind), boot_id="one")
    kernel = replace(enough, plan=CHANGE)
    second = replace(enough, leg=Fallback(kind=kind, soft_failed="it failed"))
    assert resume(enough, "one+1") == TABLE[Fallback, phase][1]
    assert {resume(record, "one+1") for record in (kernel, second)} == {TABLE[Fallback, phase][2]}
    assert {resume(record, "two") for record in (enough, kernel, second)} == {TABLE[Fallback, phase][1]}


@pytest.mark.parametrize(
    ("phase", "kind", "boot_id", "found"),
    [
        (Phase.REBOOTING, RebootKind.SOFT, "one+1", RebootKind.SOFT),
        (Phase.REBOOTING, RebootKind.SOFT, "two", RebootKind.FULL),
        (Phase.REBOOTING, RebootKind.FULL, "one+1", RebootKind.SOFT),
        (Phase.REBOOTING, RebootKind.FULL, "two", RebootKind.FULL),
        (Phase.VERIFYING, RebootKind.SOFT, "one+1", RebootKind.SOFT),
        (Phase.VERIFYING, RebootKind.SOFT, "two", RebootKind.FULL),
        (Phase.VERIFYING, RebootKind.FULL, "one+1", RebootKind.FULL),
        (Phase.VERIFYING, RebootKind.FULL, "two+1", RebootKind.FULL),
        (Phase.DRAINING, RebootKind.SOFT, "one+1", RebootKind.SOFT),
        (Phase.DRAINING, RebootKind.FULL, "two", RebootKind.FULL),
    ],
)
def test_the_kind_is_that_of_the_boot_that_took_place(
    phase: Phase, kind: RebootKind, boot_id: str, found: RebootKind
) -> None:
    record = Record(phase, Fallback(kind=kind, boots=1), boot_id="one", reboot_called=True)
    after = after_boot(record, Phase.VERIFYING, now="now", boot_id=boot_id)
    assert isinstance(after.leg, Fallback)
    assert (after.leg.kind, after.leg.boots) == (found, 2)
    requested = phase is Phase.REBOOTING
    assert (after.leg.requested_reboots, after.leg.soft_reboots) == (requested, requested and boot_id == "one+1")


# -- a planned soft reboot ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [phase for leg, phase in NEXT if leg is Apply])
def test_what_a_soft_reboot_is_worth_where_it_is_planned(phase: Phase) -> None:
    """It is the reboot of the update, and only once: after one that did not help a kernel must start."""
    os = OsProgress({"image": ""})
    full = Record(phase, Apply(), boot_id="one", os=os, plan=PLAN)
    soft = replace(full, leg=Apply(kind=RebootKind.SOFT))
    assert resume(full, "one+1") == resume(full, "one")
    assert resume(soft, "one") == resume(full, "one")
    assert {resume(record, "two") for record in (full, soft)} == {resume(full, "two")}
    if phase is Phase.REBOOTING:
        assert (resume(full, "one+1"), resume(soft, "one+1")) == (Restart.REBOOT_AGAIN, Restart.VERIFY)


@pytest.mark.parametrize(
    ("kind", "boot_id", "found"),
    [
        (RebootKind.SOFT, "one+1", RebootKind.SOFT),
        (RebootKind.SOFT, "two", RebootKind.FULL),
        (RebootKind.FULL, "one+1", RebootKind.FULL),
        (RebootKind.FULL, "two", RebootKind.FULL),
    ],
)
@pytest.mark.parametrize("phase", [Phase.REBOOTING, Phase.VERIFYING])
def test_a_planned_soft_reboot_is_one_that_took_place(
    phase: Phase, kind: RebootKind, boot_id: str, found: RebootKind
) -> None:
    record = Record(phase, Apply(kind=kind), boot_id="one")
    after = after_boot(record, Phase.VERIFYING, now="now", boot_id=boot_id)
    assert isinstance(after.leg, Apply)
    assert (after.leg.kind, after.leg.boots) == (found, 1)
