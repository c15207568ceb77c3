# SPDX-License-Identifier: Apache-2.0
"""Drift in the status, the metrics, the Kubernetes Events and the condition."""

from __future__ import annotations

from dataclasses import replace

from nodeagent.features.drift.decide import DriftedEntry
from nodeagent.features.drift.events import DriftChanged
from nodeagent.features.drift.view import STATUS, VIEWS, DriftStatus, drift_of
from nodeagent.report.counters import Counters
from nodeagent.report.exposition import render
from nodeagent.report.metrics import samples
from nodeagent.report.node_events import NodeEvent, NodeMemory
from nodeagent.report.properties import properties_of
from nodeagent.report.status import Status
from nodeagent.report.status_fold import fold
from nodeagent.report.status_json import status_to_dict
from nodeagent.report.status_line import line
from nodeagent.update.states import Phase

ENTRY = DriftedEntry("file:/etc/x", "content differs", "2026-03-01T10:00:00.500Z", "vim")
LATER = replace(ENTRY, entry="file:/etc/y", since="2026-03-01T11:00:00.000Z")
BOTH = Status(current="worker-1").with_part(DriftStatus((ENTRY, LATER)))


def metrics(status: Status) -> list[str]:
    lines = render(samples(status, Counters(), "1")).splitlines()
    return [line for line in lines if line.startswith("nodeagent_drift")]


def test_metrics() -> None:
    assert metrics(Status(current="worker-1")) == ["nodeagent_drifted 0"]
    assert metrics(BOTH) == ["nodeagent_drifted 1", "nodeagent_drift_start_timestamp_seconds 1772359200.5"]
    assert metrics(Status(Phase.DEGRADED, reason="Drifted")) == ["nodeagent_drifted 1"], "an update was refused"


def test_drift_has_a_beginning_and_an_end() -> None:
    (view,), (part,) = VIEWS, STATUS
    assert part.condition is not None
    begin = DriftChanged("worker-1", (ENTRY,), "1 managed entry differs", "Drifted")
    status, memory = fold(Status(), begin), NodeMemory()
    assert drift_of(status) == (ENTRY,)
    events = list(view.node_events(begin, status, memory))
    assert events == [NodeEvent("ConfigDrift", "Compare", "1 managed entry differs", warning=True)]
    assert part.condition.message(status) == "file:/etc/x content differs (by vim)"
    end = DriftChanged("worker-1", (), "")
    status = fold(status, end)
    assert [event.reason for event in view.node_events(end, status, memory)] == ["ConfigDriftEnded"]
    assert (status, part.condition.message(status)) == (Status(), "")


def test_the_status() -> None:
    shown = status_to_dict(BOTH, daemon="running")["drift"]
    assert [entry["entry"] for entry in shown] == ["file:/etc/x", "file:/etc/y"]
    assert shown[0] == {"entry": ENTRY.entry, "why": ENTRY.why, "since": ENTRY.since, "by": "vim"}
    assert status_to_dict(Status(), daemon="running")["drift"] == [], "a list also without drift"
    assert (properties_of(BOTH)["DriftedEntries"], properties_of(Status())["DriftedEntries"]) == (2, 0)
    expected = "Idle: current config is worker-1: drift: file:/etc/x content differs (by vim); file:/etc/y content"
    assert line(BOTH).startswith(expected)
