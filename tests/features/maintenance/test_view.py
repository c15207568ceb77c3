# SPDX-License-Identifier: Apache-2.0
"""A maintenance in the status, the metrics, the Kubernetes Events and the conditions."""

from __future__ import annotations

from dataclasses import replace

from nodeagent.features.maintenance.decide import Maintenance
from nodeagent.features.maintenance.events import MaintenanceChanged
from nodeagent.features.maintenance.view import MaintenanceStatus
from nodeagent.report.counters import Counters
from nodeagent.report.exposition import render
from nodeagent.report.metrics import samples
from nodeagent.report.node_events import NodeEvent, NodeMemory
from nodeagent.report.part_view import Disruption
from nodeagent.report.parts.registry import disruption_of
from nodeagent.report.properties import properties_of
from nodeagent.report.status import Status
from nodeagent.report.status_fold import fold
from nodeagent.report.status_line import line
from nodeagent.report.views.registry import view_of
from nodeagent.update.ports.events import Event

NOTE = Maintenance("3f2b", "jane", "disks", "2026-11-21T03:00:00.000Z", drain=True)


class Events:
    """The events one after the other, as the report has them, and the Kubernetes Events of each."""

    def __init__(self, status: Status | None = None) -> None:
        self.status = status or Status(boot_id="b1")
        self.memory = NodeMemory(self.status)

    def of(self, event: Event, now: float = 0.0) -> list[NodeEvent]:
        self.status, self.memory.now = fold(self.status, event), now
        found = list(view_of(event).node_events(event, self.status, self.memory))
        self.memory.status = self.status
        return found

    def maintenance(self, note: Maintenance | None) -> list[str]:
        return [found.reason for found in self.of(MaintenanceChanged(note))]


def test_a_maintenance() -> None:
    events = Events()
    assert events.maintenance(NOTE) == ["MaintenancePlanned"]
    then = "the maintenance goes on without the drain"
    assert disruption_of(events.status) == Disruption(requester="jane", reason="disks", planned=True, then=then)
    began = replace(NOTE, began="t", until="2026-11-21T05:00:00.000Z")
    assert events.maintenance(began) == ["MaintenanceStarted", "DrainRequested"]
    assert disruption_of(events.status) == Disruption(
        requester="jane", reason="disks", since="t", until="2026-11-21T05:00:00.000Z", draining=True, then=then
    )
    assert events.maintenance(began) == []
    drained = replace(began, drained="t", power_off=True)
    assert events.maintenance(drained) == ["Drained", "PoweringOff"]
    state = disruption_of(events.status)
    assert state is not None
    assert state.drained
    off = replace(drained, off_boot="b0")
    assert events.maintenance(off) == []
    ended = replace(off, ended="stopped by jane")
    assert events.maintenance(ended) == ["MaintenanceEnding"]
    assert events.maintenance(None) == ["MaintenanceEnded"]
    assert disruption_of(events.status) is None


def test_a_drain_that_was_given_up_is_a_problem_once() -> None:
    events = Events()
    events.maintenance(NOTE)
    events.maintenance(replace(NOTE, began="t"))
    given_up = replace(NOTE, began="t", problem="DrainTimedOut: web-0")
    assert events.maintenance(given_up) == ["MaintenanceProblem"]
    assert events.maintenance(given_up) == []
    state = disruption_of(events.status)
    assert state is not None
    assert not state.drained


def test_a_canceled_request_was_no_maintenance() -> None:
    events = Events()
    events.maintenance(NOTE)
    assert events.maintenance(None) == []


def test_a_state_from_before_the_start_is_not_reported_again() -> None:
    drains = replace(NOTE, began="t")
    events = Events(Status(boot_id="b1").with_part(MaintenanceStatus(drains)))
    assert events.maintenance(drains) == []
    assert events.maintenance(replace(drains, drained="t")) == ["Drained"]


def test_metrics() -> None:
    def page(status: Status) -> list[str]:
        lines = render(samples(status, Counters(), "1")).splitlines()
        return [line for line in lines if line.startswith("nodeagent_maintenance")]

    assert page(Status()) == []
    assert page(Status().with_part(MaintenanceStatus(NOTE))) == [
        'nodeagent_maintenance{requester="jane",state="planned"} 1',
        "nodeagent_maintenance_start_timestamp_seconds 1795230000",
    ]
    assert len(page(Status().with_part(MaintenanceStatus(replace(NOTE, since="now"))))) == 1


def test_the_property_and_the_line() -> None:
    status = Status(boot_id="b1").with_part(MaintenanceStatus(replace(NOTE, began="t")))
    assert (properties_of(status)["Maintenance"], properties_of(Status())["Maintenance"]) == ("draining", "")
    assert line(status) == "Idle: maintenance draining, jane: disks"
