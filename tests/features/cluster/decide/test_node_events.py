# SPDX-License-Identifier: Apache-2.0
"""Kubernetes Events and conditions of an update and a drain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodeagent.core.boot import RebootKind
from nodeagent.features.cluster.decide import conditions
from nodeagent.features.cluster.decide.conditions import LONGEST, NodeState, node_state
from nodeagent.features.cluster.decide.drain import PodWait, Remaining
from nodeagent.features.cluster.decide.node_event_source import NodeEventSource
from nodeagent.features.cluster.events import DrainAdvanced, DrainProgress
from nodeagent.features.cluster.view import BLOCKED_FOR
from nodeagent.report.node_events import NodeEvent
from nodeagent.report.part_view import Disruption
from nodeagent.report.status import Status
from nodeagent.report.status_fold import fold
from nodeagent.update.ports.events import (
    ConfigRefused,
    Event,
    FallbackChosen,
    HostDegraded,
    LeaseChanged,
    PhaseEntered,
    RevertStarted,
    StagingAdvanced,
    StepDone,
    StepProgress,
    UpdateContext,
    UpdateDone,
    UpdateFinished,
    UpdateStarted,
    UpdateWaiting,
    Warned,
)
from nodeagent.update.ports.store import HistoryEntry
from nodeagent.update.states import Phase

BUDGET = Remaining("shop", "web-0", PodWait.BUDGET, "the disruption budget web needs 3 healthy pods and has 3")
GOING = Remaining("shop", "web-1", PodWait.REQUESTED, "grace period of 30 s")
GRACE = Remaining("shop", "web-2", PodWait.GRACE_PERIOD, "30 s, until 2026-11-21T03:00:00Z")
FINALIZER = Remaining("shop", "db-0", PodWait.FINALIZERS, "example.com/backup")


class Events:
    """The events one after the other, as the report has them."""

    def __init__(self, status: Status | None = None) -> None:
        self.status = status or Status(boot_id="b1")
        self.source = NodeEventSource()
        self.source.begin(self.status)

    def of(self, event: Event, now: float = 0.0) -> list[NodeEvent]:
        self.status = fold(self.status, event)
        return list(self.source.events_for(event, self.status, now))

    def reasons(self, event: Event, now: float = 0.0) -> list[str]:
        return [found.reason for found in self.of(event, now)]

    def phase(self, phase: Phase, **more: Any) -> list[str]:
        return self.reasons(PhaseEntered(UpdateContext(phase, desired="worker-2"), **more))

    def drain(self, *pods: Remaining, now: float = 0.0) -> list[NodeEvent]:
        return self.of(DrainAdvanced(pods), now)


def test_an_update_that_drains_and_reboots() -> None:
    events = Events()
    started = UpdateStarted(UpdateContext(Phase.LEASING, desired="worker-2"), "Drain, Reboot", 1)
    assert events.of(started) == [NodeEvent("UpdateStarted", "Update", "update to worker-2: Drain, Reboot")]
    waiting = UpdateWaiting(UpdateContext(Phase.LEASING), "jane holds the lease", "LeaseHeld")
    assert events.of(waiting) == [NodeEvent("UpdateWaiting", "Wait", "LeaseHeld: jane holds the lease")]
    assert events.phase(Phase.LEASING) == []
    assert node_state(events.status) == NodeState("nodeagent", "update to worker-2", planned=True)
    assert events.phase(Phase.DRAINING) == ["DrainRequested"]
    events.drain(GOING)
    assert node_state(events.status) == NodeState("nodeagent", "update to worker-2", draining=True, remaining=(GOING,))
    assert events.phase(Phase.WRITING) == ["Drained"]
    drained = NodeState("nodeagent", "update to worker-2", drained=True)
    assert node_state(events.status) == drained
    assert events.phase(Phase.ACTING) == []
    assert events.phase(Phase.REBOOTING, message="rebooting into worker-2") == ["Rebooting"]
    assert node_state(events.status) == drained, "and the conditions stay through the reboot"
    after = Events(replace(events.status, phase=Phase.REBOOTING, boot_id="b2"))
    assert after.phase(Phase.VERIFYING) == []
    assert node_state(after.status) == drained
    done = UpdateDone(UpdateContext(Phase.RELEASING, desired="worker-2"), "", 1.0, 1, "sha")
    assert after.of(done) == [NodeEvent("UpdateDone", "Update", "worker-2 is the current config")]
    after.phase(Phase.IDLE)
    assert node_state(after.status) == NodeState()


def test_a_drain_that_timed_out_is_not_reported_as_drained() -> None:
    events = Events()
    events.phase(Phase.DRAINING)
    fallback = FallbackChosen(UpdateContext(Phase.DRAINING, desired="worker-2"), "web-0 is there", "DrainTimedOut")
    assert events.of(fallback) == [NodeEvent("FallbackReboot", "Reboot", "DrainTimedOut: web-0 is there", warning=True)]
    assert events.phase(Phase.WRITING) == []
    assert not node_state(events.status).drained


def test_a_soft_reboot_says_that_the_boot_id_stays() -> None:
    """The kubelet reports no reboot then."""
    about = UpdateContext(Phase.ACTING, desired="worker-2")
    (event,) = Events().of(FallbackChosen(about, "it failed", "JobFailed", RebootKind.SOFT))
    assert (event.reason, event.warning) == ("FallbackReboot", True)
    assert "keeps the boot ID" in event.note
    assert event.note.endswith("JobFailed: it failed")


def test_an_update_without_a_drain_has_no_condition_after_the_lease() -> None:
    events = Events()
    events.phase(Phase.LEASING)
    assert node_state(events.status).planned
    assert events.phase(Phase.WRITING) == []
    assert node_state(events.status) == NodeState()


def finished(outcome: str, reason: str = "", message: str = "") -> UpdateFinished:
    entry = HistoryEntry("u", "worker-1", "worker-2", "t", "t", outcome, "none", 0, False, 1.0, reason, message)
    return UpdateFinished(entry, 0)


def test_a_superseded_update_has_one_event() -> None:
    ended = finished("superseded", "Superseded", "worker-3 is desired instead")
    assert Events().of(ended) == [NodeEvent("UpdateEnded", "Update", "Superseded: worker-3 is desired instead")]
    assert Events().of(finished("done")) == [], "UpdateDone reports it"


@pytest.mark.parametrize(
    ("kind", "reason", "expected"),
    [
        (HostDegraded, "VerifyLate", "UpdateDegraded"),
        (HostDegraded, "Reverted", "UpdateReverted"),
        (ConfigRefused, "NodeLeaving", "UpdateRefused"),
        (RevertStarted, "VerifyLate", "UpdateReverting"),
        (FallbackChosen, "ActionLate", "FallbackReboot"),
    ],
)
def test_failures_are_warnings_with_a_reason(kind: Any, reason: str, expected: str) -> None:
    (event,) = Events().of(kind(UpdateContext(Phase.VERIFYING), "crio.service", reason))
    assert (event.reason, event.note, event.warning) == (expected, f"{reason}: crio.service", True)


ABOUT = UpdateContext(Phase.ACTING)
STEP = StepProgress("restart crio.service", 1, 2, 0)


@pytest.mark.parametrize(
    "event",
    [StepDone(ABOUT, STEP, 1.0), Warned(ABOUT, "x"), LeaseChanged(None), StagingAdvanced(ABOUT, STEP, 1)],
    ids=lambda event: type(event).__name__,
)
def test_steps_and_progress_are_not_events(event: Event) -> None:
    assert Events().of(event) == []


def test_only_a_pod_that_stays_blocked_is_an_event() -> None:
    events = Events()
    events.phase(Phase.DRAINING)
    assert events.drain(BUDGET, GOING, GRACE, now=100) == []
    assert events.drain(BUDGET, GOING, GRACE, now=100 + BLOCKED_FOR - 1) == []
    assert events.drain(BUDGET, GOING, GRACE, FINALIZER, now=100 + BLOCKED_FOR) == [
        NodeEvent("DrainBlocked", "Evict", f"shop/web-0: {BUDGET.why}", warning=True)
    ]
    assert events.drain(GOING, now=200) == []
    assert events.drain(BUDGET, now=201) == [], "the pod was replaced, so its time begins again"
    many = [Remaining("shop", f"db-{number:02}", PodWait.FINALIZERS, "f") for number in range(30)]
    events.drain(*many, now=300)
    assert len(events.drain(*many, now=400)) == 10


def test_a_state_from_before_the_start_is_not_reported_again() -> None:
    assert Events(Status(phase=Phase.DRAINING)).phase(Phase.DRAINING) == []
    assert Events(Status(phase=Phase.DRAINING)).phase(Phase.WRITING) == ["Drained"]


def test_an_operator_comes_before_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    drains = Disruption(requester="jane", reason="disks", until="2026-11-21T05:00:00.000Z", draining=True)
    status = Status(Phase.LEASING, desired="worker-2").with_part(DrainProgress((FINALIZER,)))
    about = "disks (until 2026-11-21T05:00:00.000Z)"
    monkeypatch.setattr(conditions, "disruption_of", lambda _: drains)
    assert node_state(status) == NodeState("jane", about, maintenance=True, draining=True, remaining=(FINALIZER,))
    planned = Disruption(requester="jane", reason="disks", planned=True)
    monkeypatch.setattr(conditions, "disruption_of", lambda _: planned)
    assert node_state(status) == NodeState("jane", "disks", maintenance=True, planned=True)


def test_notes_have_a_length() -> None:
    (event,) = Events().of(UpdateWaiting(UpdateContext(Phase.LEASING), "x" * 5000, "LeaseHeld"))
    assert len(event.note) == LONGEST
