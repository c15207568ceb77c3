# SPDX-License-Identifier: Apache-2.0
"""Which entries need the start of a kernel, so that a fallback of their update is no soft reboot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.boot import RebootKind
from nodeagent.core.plan.change import Action, ActionType, Change, ChangeKind, Plan, PlannedChange, PolicySource
from nodeagent.core.plan.kernel_start import kernel_start
from nodeagent.core.plan.reboot_kind import ChosenKind, chosen_to_dict, may_fall_back
from nodeagent.features.soft_reboot.decide import fallback_kind, planned_kind
from nodeagent.features.soft_reboot.reasons import SoftRebootReason
from tests.core.plan.test_kernel_start import KERNEL, USERSPACE, change

pytestmark = pytest.mark.finding(
    "OS: soft reboots",
    "A fallback is soft only where services are all that matters, and where it starts the same system; an"
    " old logind never reboots fully instead.",
)


@pytest.mark.parametrize("entry", KERNEL)
def test_a_kernel_must_start_for(entry: str) -> None:
    for kind in ChangeKind:
        assert kernel_start(change(entry, kind))
    found = fallback_kind([change(USERSPACE[0]), change(entry)], soft=True)
    assert (found.kind, found.reason, found.because) == (
        RebootKind.FULL,
        SoftRebootReason.KERNEL_START_NEEDED,
        (entry,),
    )
    assert entry in found.why


@pytest.mark.parametrize("entry", USERSPACE)
def test_services_are_enough_for(entry: str) -> None:
    assert kernel_start(change(entry)) == ""
    assert fallback_kind([change(entry)], soft=True).kind is RebootKind.SOFT


changes = st.lists(st.sampled_from(KERNEL + USERSPACE).map(change), max_size=8)


@given(changes, st.booleans())
def test_it_is_soft_only_if_no_entry_needs_a_kernel(found: list[Change], soft: bool) -> None:
    kind = fallback_kind(found, soft=soft)
    assert (kind.kind is RebootKind.SOFT) == (soft and not any(map(kernel_start, found)))
    assert bool(kind.why) == (kind.kind is RebootKind.FULL)
    assert kind == fallback_kind(reversed(found), soft=soft), "the order does not count"
    assert set(chosen_to_dict(kind)) <= {"kind", "why", "reason", "because"}


def test_the_setting_decides_first() -> None:
    found = fallback_kind([change("file:/etc/sysctl.d/x.conf")], soft=False)
    assert chosen_to_dict(found) == {"kind": "full", "why": "reboot.soft is never"}


@pytest.mark.parametrize(
    ("actions", "may"),
    [
        ((ActionType.RESTART,), True),
        ((ActionType.DRAIN, ActionType.RELOAD), True),
        ((ActionType.DRAIN, ActionType.REBOOT), False),
        ((ActionType.NONE,), False),
        ((), False),
    ],
)
def test_a_plan_with_a_reboot_or_without_an_action_has_no_fallback(actions: tuple[ActionType, ...], may: bool) -> None:
    assert may_fall_back(Plan("a", "b", (), tuple(map(Action, actions)))) is may


# -- the planned reboot ------------------------------------------------------------------------------------------------


def planned(
    entry: str, policy: PolicySource = PolicySource.NONE, kind: ActionType = ActionType.REBOOT
) -> PlannedChange:
    return PlannedChange(change(entry), policy, (Action(kind),))


IMAGE = planned("osImageURL:osImageURL")


@pytest.mark.parametrize(
    "entry",
    [planned("file:/etc/unlisted"), planned("extensions:usbguard"), planned("unit:app.service", PolicySource.DEFAULT),
     planned("file:/etc/mine", PolicySource.USER, ActionType.RESTART)],
    ids=str,
)  # fmt: skip
def test_the_new_deployment_decides(entry: PlannedChange) -> None:
    assert planned_kind([IMAGE, entry], soft=True, deploys=True) == ChosenKind(RebootKind.SOFT)


@pytest.mark.parametrize("entry", KERNEL)
def test_the_plan_may_need_a_kernel(entry: str) -> None:
    if entry.startswith(("osImageURL", "extensions")):
        return
    found = planned_kind([IMAGE, planned(entry)], soft=True, deploys=True)
    assert (found.kind, found.reason, found.because) == (
        RebootKind.FULL,
        SoftRebootReason.KERNEL_START_NEEDED,
        (entry,),
    )


def test_the_policy_of_the_admin_may_require_one() -> None:
    found = planned_kind([IMAGE, planned("file:/etc/mine", PolicySource.USER)], soft=True, deploys=True)
    assert (found.kind, found.because) == (RebootKind.FULL, ("file:/etc/mine",))
    assert "policy of the admin" in found.why


@pytest.mark.parametrize(("soft", "deploys"), [(False, True), (True, False)])
def test_the_setting_and_a_deployment_are_needed(soft: bool, deploys: bool) -> None:
    found = planned_kind([IMAGE], soft=soft, deploys=deploys)
    assert (found.kind, found.reason) == (RebootKind.FULL, "")
    assert found.why


def test_the_json_of_a_planned_reboot() -> None:
    later = ChosenKind(None, "later", saves=143.24)
    assert chosen_to_dict(later) == {"kind": "undecided", "why": "later", "saves_seconds": 143.2}
    assert chosen_to_dict(ChosenKind(RebootKind.SOFT)) == {"kind": "soft"}
