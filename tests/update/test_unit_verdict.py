# SPDX-License-Identifier: Apache-2.0
"""The judge of units: its table, and what holds for all facts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.update.ports.host import DOWN, UP, UnitState
from nodeagent.update.steps.unit_verdict import FINISHED, Health, JudgedUnit, judge, must_run, state_before

RUNNING = UnitState("a.service", "loaded", "active", "running", "simple", "success", "1", 0, "enabled")
DOWN_NOW = replace(RUNNING, active="inactive", sub="dead")
FAILED = replace(RUNNING, active="failed", sub="failed", result="exit-code")
AGAIN = replace(RUNNING, active="activating", sub="auto-restart", result="exit-code")
STARTING = replace(RUNNING, active="activating", sub="start")
NOTIFY, ONESHOT = replace(STARTING, type="notify"), replace(STARTING, type="oneshot")
DONE = replace(DOWN_NOW, type="oneshot")
NOT_RUN = replace(DONE, invocation_id="")
GOOD, BAD, NOT_YET = Health.GOOD, Health.BAD, Health.NOT_YET
BEHIND = ("crio.service",)
STATIC = replace(DOWN_NOW, file="static")


@pytest.mark.parametrize(
    ("state", "facts", "health", "at_end"),
    [
        (RUNNING, {}, GOOD, None),
        (replace(RUNNING, active="reloading"), {}, GOOD, None),
        # It died: at once, or while Restart= starts it again.
        (FAILED, {}, BAD, None),
        (FAILED, {"before": "failed"}, GOOD, None),
        (FAILED, {"before": "inactive", "due": True}, BAD, None),
        (FAILED, {"before": FINISHED}, BAD, None),
        (AGAIN, {}, NOT_YET, BAD),
        (AGAIN, {"rebooted": True}, NOT_YET, BAD),
        (AGAIN, {"before": "failed"}, GOOD, None),
        # It ran, and is inactive, whatever starts it.
        (DOWN_NOW, {"before": "active"}, BAD, None),
        (DOWN_NOW, {"before": "active", "rebooted": True}, BAD, None),
        (STATIC, {"before": "active", "rebooted": True}, BAD, None),
        (replace(STATIC, file="generated"), {"before": "active", "rebooted": True}, BAD, None),
        (replace(STATIC, file="disabled"), {"before": "active", "rebooted": True}, BAD, None),
        (DOWN_NOW, {"before": "active", "rebooted": True, "booted": False}, NOT_YET, BAD),
        (DOWN_NOW, {"before": "inactive", "rebooted": True}, GOOD, None),
        (DOWN_NOW, {"rebooted": True}, GOOD, None),
        (DOWN_NOW, {"rebooted": True, "wanted": True}, BAD, None),
        (DOWN_NOW, {"rebooted": True, "failed_needs": ("dep.service",)}, BAD, None),
        # The rules of systemd.
        (replace(DOWN_NOW, condition="ConditionPathExists=/x"), {"before": "active", "rebooted": True}, GOOD, None),
        (replace(DOWN_NOW, triggered_by=("a.socket",)), {"before": "active"}, GOOD, None),
        (replace(DOWN_NOW, triggered_by=("a.socket",), result="exit-code"), {"before": "active"}, BAD, None),
        (replace(STATIC, bus_name="org.a"), {"before": "active", "rebooted": True}, GOOD, None),
        (replace(STATIC, bus_name="org.a"), {"before": "active", "rebooted": True, "wanted": True}, BAD, None),
        (replace(DOWN_NOW, load="masked"), {"before": "active", "rebooted": True}, GOOD, None),
        # A oneshot.
        (DONE, {"before": FINISHED}, GOOD, None),
        (DONE, {"before": "active", "rebooted": True}, GOOD, None),
        (NOT_RUN, {"before": "active", "rebooted": True}, BAD, None),
        (NOT_RUN, {"before": FINISHED, "rebooted": True}, GOOD, None),
        (NOT_RUN, {"before": FINISHED, "rebooted": True, "wanted": True}, BAD, None),
        (ONESHOT, {"touched": True, "rebooted": True}, NOT_YET, GOOD),
        (ONESHOT, {"touched": True, "rebooted": True, "behind": BEHIND}, NOT_YET, BAD),
        (ONESHOT, {"rebooted": True, "behind": BEHIND}, NOT_YET, GOOD),
        # It is still starting.
        (NOTIFY, {"touched": True, "rebooted": True}, NOT_YET, BAD),
        (NOTIFY, {"rebooted": True, "behind": BEHIND}, NOT_YET, GOOD),
        (replace(NOTIFY, type="forking"), {"touched": True}, NOT_YET, BAD),
        (STARTING, {"touched": True, "rebooted": True}, NOT_YET, GOOD),
        (STARTING, {"touched": True, "rebooted": True, "behind": BEHIND}, NOT_YET, BAD),
        (replace(RUNNING, active="deactivating"), {}, NOT_YET, BAD),
        (replace(STARTING, restarts=2), {}, NOT_YET, BAD),
        (replace(STARTING, restarts=2), {"before": "failed"}, NOT_YET, GOOD),
    ],
)
@pytest.mark.finding("units: automatic restarts", "An automatic restart is waited for.")
@pytest.mark.finding("units: oneshots", "A oneshot that succeeded before and fails now is bad.")
@pytest.mark.finding(
    "units: starts without an end", "A unit that never starts is bad if it blocks others or reports its readiness."
)
@pytest.mark.finding(
    "units: proof after an update", "A unit that ran before and is inactive is bad, whatever starts it."
)
def test_table(state: UnitState, facts: dict[str, Any], health: Health, at_end: Health | None) -> None:
    verdict = judge(JudgedUnit(state, **facts))
    assert verdict.health is health
    assert at_end is None or verdict.at_end is at_end
    assert (verdict.why == "") is (health is GOOD)
    assert health is GOOD or "a.service" in verdict.why


def test_the_jobs_behind_a_unit_are_named() -> None:
    facts = JudgedUnit(NOTIFY, behind=("crio.service", "kubelet.service"))
    assert (
        judge(facts).why == "a.service is still starting, and the start of crio.service, kubelet.service waits for it"
    )


@pytest.mark.finding(
    "units: scripts that cannot start", "The message about a unit that failed has the exit status or the signal."
)
def test_how_it_failed() -> None:
    end = {"end": "exit status 203"}
    stopped = replace(DOWN_NOW, result="exit-code", **end)
    for state in (replace(FAILED, **end), replace(AGAIN, **end), stopped):
        assert judge(JudgedUnit(state, "active")).why.endswith(" (exit-code, exit status 203)")
    assert judge(JudgedUnit(FAILED, "active")).why == "a.service failed (exit-code)"


@pytest.mark.parametrize(
    ("state", "before"),
    [
        (RUNNING, "active"),
        (DOWN_NOW, "inactive"),
        (FAILED, "failed"),
        (AGAIN, "failed"),
        (replace(AGAIN, sub="auto-restart-queued"), "failed"),
        (DONE, FINISHED),
        (replace(DONE, condition="ConditionPathExists=/x"), "inactive"),
        (replace(FAILED, type="oneshot"), "failed"),
    ],
)
def test_the_state_before(state: UnitState, before: str) -> None:
    assert state_before(state) == before
    assert must_run(before, due=False) is (before not in DOWN)


states = st.builds(
    UnitState,
    st.just("a.service"),
    st.just("loaded"),
    st.sampled_from(["active", "reloading", "inactive", "failed", "activating", "deactivating"]),
    st.sampled_from(["running", "dead", "start", "auto-restart"]),
    st.sampled_from(["simple", "notify", "oneshot", "forking", "dbus", ""]),
    st.sampled_from(["success", "exit-code", "timeout", ""]),
    st.sampled_from(["", "1"]),
    st.integers(0, 3),
    st.sampled_from(["enabled", "static", "disabled", "generated", ""]),
    st.sampled_from(["", "ConditionPathExists=/x"]),
    st.sampled_from([(), ("a.socket",)]),
    st.sampled_from(["", "org.a"]),
)
facts = st.builds(
    JudgedUnit,
    states,
    st.sampled_from(["", "active", "inactive", "failed", FINISHED]),
    *[st.booleans()] * 5,
    st.sampled_from([(), BEHIND]),
    st.sampled_from([(), ("dep.service",)]),
)


@given(facts)
def test_what_holds_for_all_facts(one: JudgedUnit) -> None:
    verdict, state = judge(one), one.state
    assert (verdict.health is GOOD) is (verdict.why == "")
    if state.active in UP:
        assert verdict.health is GOOD
    if state.active == "failed" and state.sub != "auto-restart" and one.expected:
        assert verdict.health is BAD
    on_demand = state.condition or state.triggered_by or state.bus_name or state.type == "oneshot"
    if state.active == "inactive" and state.sub == "dead" and one.before == "active" and not on_demand:
        assert verdict.health is BAD or (verdict.health is NOT_YET and verdict.at_end is BAD)
    if not one.expected and (state.active in DOWN):
        assert verdict.health is GOOD
    # A unit that fails, or that is being restarted, is the same after a restart, a boot and a revert.
    if state.active != "inactive":
        assert judge(replace(one, rebooted=not one.rebooted)) == verdict
    assert judge(replace(one, state=replace(state, file="enabled"))) == verdict


@given(facts)
def test_a_unit_that_the_update_does_not_touch_is_never_bad_because_it_is_slow(one: JudgedUnit) -> None:
    slow = replace(one, state=replace(one.state, active="activating", sub="start", restarts=0), touched=False)
    assert (judge(slow).health, judge(slow).at_end) == (NOT_YET, GOOD)
