"""What the cluster is told of an update, a drain and a maintenance, and what it is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodeagent.core.coordination.drain import Cause, Remaining
from nodeagent.core.coordination.maintenance import Maintenance
from nodeagent.core.report.conditions import NodeState
from nodeagent.core.report.node_events import BLOCKED_FOR, LONGEST, Notice, Notices, node_state
from nodeagent.core.report.status import Status, fold
from nodeagent.core.update.events import Event, EventKind
from nodeagent.core.update.phase import Phase

BUDGET = Remaining("shop", "web-0", Cause.BUDGET, "the disruption budget web needs 3 healthy pods and has 3")
GOING = Remaining("shop", "web-1", Cause.REQUESTED, "grace period of 30 s")
GRACE = Remaining("shop", "web-2", Cause.GRACE_PERIOD, "30 s, until 2026-11-21T03:00:00Z")
FINALIZER = Remaining("shop", "db-0", Cause.FINALIZERS, "example.com/backup")
NOTE = Maintenance("3f2b", "jane", "disks", "2026-11-21T03:00:00.000Z", drain=True)


class Told:
    """The events one after the other, as the report has them."""

    def __init__(self, status: Status | None = None) -> None:
        self.status = status or Status(boot_id="b1")
        self.notices = Notices()
        self.notices.begin(self.status)

    def of(self, event: Event, now: float = 0.0) -> list[Notice]:
        self.status = fold(self.status, event)
        return list(self.notices.of(event, self.status, now))

    def reasons(self, event: Event, now: float = 0.0) -> list[str]:
        return [notice.reason for notice in self.of(event, now)]

    def phase(self, phase: Phase, **more: Any) -> list[str]:
        return self.reasons(Event(EventKind.PHASE, phase, desired="worker-2", **more))

    def drain(self, *pods: Remaining, now: float = 0.0) -> list[Notice]:
        return self.of(Event(EventKind.DRAIN, self.status.phase, fields={"remaining": pods}), now)

    def maintenance(self, note: Maintenance | None) -> list[str]:
        return self.reasons(Event(EventKind.MAINTENANCE, self.status.phase, fields={"maintenance": note}))


def test_an_update_that_drains_and_reboots() -> None:
    told = Told()
    started = Event(EventKind.UPDATE_STARTED, Phase.LEASING, "Drain, Reboot", desired="worker-2")
    assert told.of(started) == [Notice("UpdateStarted", "Update", "update to worker-2: Drain, Reboot")]
    waiting = Event(EventKind.WAITING, Phase.LEASING, "jane holds the lease", "LeaseHeld")
    assert told.of(waiting) == [Notice("UpdateWaiting", "Wait", "LeaseHeld: jane holds the lease")]
    assert told.phase(Phase.LEASING) == []
    assert node_state(told.status) == NodeState("nodeagent", "update to worker-2", planned=True)
    assert told.phase(Phase.DRAINING) == ["DrainRequested"]
    told.drain(GOING)
    assert node_state(told.status) == NodeState("nodeagent", "update to worker-2", draining=True, remaining=(GOING,))
    assert told.phase(Phase.WRITING) == ["Drained"]
    drained = NodeState("nodeagent", "update to worker-2", drained=True)
    assert node_state(told.status) == drained
    assert told.phase(Phase.ACTING) == []
    assert told.phase(Phase.REBOOTING, message="rebooting into worker-2") == ["Rebooting"]
    assert node_state(told.status) == drained, "and the conditions stay through the reboot"
    after = Told(replace(told.status, phase=Phase.REBOOTING, boot_id="b2"))
    assert after.phase(Phase.VERIFYING) == []
    assert node_state(after.status) == drained
    done = Event(EventKind.UPDATE_DONE, Phase.RELEASING, desired="worker-2")
    assert after.of(done) == [Notice("UpdateDone", "Update", "worker-2 is in force")]
    after.phase(Phase.IDLE)
    assert node_state(after.status) == NodeState()


def test_a_drain_whose_time_was_over_is_not_told_as_drained() -> None:
    told = Told()
    told.phase(Phase.DRAINING)
    fallback = Event(EventKind.FALLBACK, Phase.DRAINING, "web-0 is there", "DrainTimedOut", desired="worker-2")
    assert told.of(fallback) == [Notice("FallbackReboot", "Reboot", "DrainTimedOut: web-0 is there", warning=True)]
    assert told.phase(Phase.WRITING) == []
    assert not node_state(told.status).drained


def test_an_update_without_a_drain_is_planned_and_then_nobodys_business() -> None:
    told = Told()
    told.phase(Phase.LEASING)
    assert node_state(told.status).planned
    assert told.phase(Phase.WRITING) == []
    assert node_state(told.status) == NodeState()


def test_an_update_that_is_not_wanted_any_more() -> None:
    fields = {"outcome": "superseded"}
    ended = Event(EventKind.UPDATE_FINISHED, Phase.IDLE, "worker-3 is desired instead", "Superseded", fields=fields)
    assert Told().of(ended) == [Notice("UpdateEnded", "Update", "Superseded: worker-3 is desired instead")]
    done = Event(EventKind.UPDATE_FINISHED, Phase.IDLE, fields={"outcome": "done"})
    assert Told().of(done) == [], "its own event says so"


@pytest.mark.parametrize(
    ("kind", "reason", "expected"),
    [
        (EventKind.DEGRADED, "VerifyLate", "UpdateDegraded"),
        (EventKind.DEGRADED, "Reverted", "UpdateReverted"),
        (EventKind.REFUSED, "NodeLeaving", "UpdateRefused"),
        (EventKind.REVERTING, "VerifyLate", "UpdateReverting"),
        (EventKind.FALLBACK, "ActionLate", "FallbackReboot"),
    ],
)
def test_what_goes_wrong_is_a_warning_with_its_reason(kind: EventKind, reason: str, expected: str) -> None:
    (notice,) = Told().of(Event(kind, Phase.VERIFYING, "crio.service", reason))
    assert (notice.reason, notice.note, notice.warning) == (expected, f"{reason}: crio.service", True)


@pytest.mark.parametrize("kind", [EventKind.STEP_DONE, EventKind.WARNING, EventKind.LEASE, EventKind.STAGING])
def test_what_is_not_worth_one(kind: EventKind) -> None:
    assert Told().of(Event(kind, Phase.ACTING, "x")) == []


def test_a_pod_that_stays_is_told_after_a_while_and_one_that_goes_is_not() -> None:
    told = Told()
    told.phase(Phase.DRAINING)
    assert told.drain(BUDGET, GOING, GRACE, now=100) == []
    assert told.drain(BUDGET, GOING, GRACE, now=100 + BLOCKED_FOR - 1) == []
    assert told.drain(BUDGET, GOING, GRACE, FINALIZER, now=100 + BLOCKED_FOR) == [
        Notice("DrainBlocked", "Evict", f"shop/web-0: {BUDGET.why}", warning=True)
    ]
    assert told.drain(GOING, now=200) == []
    assert told.drain(BUDGET, now=201) == [], "it went, and came back: its time begins anew"
    many = [Remaining("shop", f"db-{number:02}", Cause.FINALIZERS, "f") for number in range(30)]
    told.drain(*many, now=300)
    assert len(told.drain(*many, now=400)) == 10


def test_a_maintenance() -> None:
    told = Told()
    assert told.maintenance(NOTE) == ["MaintenancePlanned"]
    assert node_state(told.status) == NodeState("jane", "disks", maintenance=True, planned=True)
    began = replace(NOTE, began="t", until="2026-11-21T05:00:00.000Z")
    assert told.maintenance(began) == ["MaintenanceStarted", "DrainRequested"]
    state = node_state(told.status)
    assert (state.draining, state.reason) == (True, "disks (until 2026-11-21T05:00:00.000Z)")
    told.drain(FINALIZER, now=0)
    assert [notice.note for notice in told.drain(FINALIZER, now=99)] == ["shop/db-0: " + FINALIZER.why]
    assert node_state(told.status).remaining == (FINALIZER,)
    assert told.maintenance(began) == []
    drained = replace(began, drained="t", power_off=True)
    assert told.maintenance(drained) == ["Drained", "PoweringOff"]
    assert node_state(told.status).drained
    off = replace(drained, off_boot="b0")
    assert told.maintenance(off) == []
    ended = replace(off, ended="stopped by jane")
    assert told.maintenance(ended) == ["MaintenanceEnding"]
    assert told.maintenance(None) == ["MaintenanceEnded"]
    assert node_state(told.status) == NodeState()


def test_a_drain_that_was_given_up_is_a_problem_once() -> None:
    told = Told()
    told.maintenance(NOTE)
    told.maintenance(replace(NOTE, began="t"))
    given_up = replace(NOTE, began="t", problem="DrainTimedOut: web-0")
    assert told.maintenance(given_up) == ["MaintenanceProblem"]
    assert told.maintenance(given_up) == []
    assert not node_state(told.status).drained


def test_what_a_process_found_is_not_told_again_and_what_follows_is() -> None:
    drains = replace(NOTE, began="t")
    told = Told(Status(boot_id="b1", maintenance=drains))
    assert told.maintenance(drains) == []
    assert told.maintenance(replace(drains, drained="t")) == ["Drained"]
    assert Told(Status(phase=Phase.DRAINING)).phase(Phase.DRAINING) == []
    assert Told(Status(phase=Phase.DRAINING)).phase(Phase.WRITING) == ["Drained"]


def test_a_plan_that_was_taken_back_was_no_maintenance() -> None:
    told = Told()
    told.maintenance(NOTE)
    assert told.maintenance(None) == []


def test_notes_have_a_length() -> None:
    (notice,) = Told().of(Event(EventKind.WAITING, Phase.LEASING, "x" * 5000, "LeaseHeld"))
    assert len(notice.note) == LONGEST
