# SPDX-License-Identifier: Apache-2.0
"""A drain in the status and in the metrics: of an update, and of what an operator does with the node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodeagent.features.cluster import view
from nodeagent.features.cluster.decide.drain import PodWait, Remaining
from nodeagent.features.cluster.events import DrainAdvanced, DrainProgress, remaining_of
from nodeagent.report.counters import Counters
from nodeagent.report.exposition import render
from nodeagent.report.metrics import samples
from nodeagent.report.node_events import NodeMemory
from nodeagent.report.part_view import Disruption
from nodeagent.report.status import Status
from nodeagent.report.status_fold import fold
from nodeagent.report.status_json import status_to_dict
from nodeagent.report.views.registry import view_of
from nodeagent.update.ports.events import LeaseChanged, PhaseEntered, UpdateContext
from nodeagent.update.states import Phase

PODS = (Remaining("db", "a", PodWait.REQUESTED), Remaining("db", "b", PodWait.BUDGET))
OTHER = Disruption(requester="jane", reason="disks", since="02:00", draining=True)


def disrupted(monkeypatch: pytest.MonkeyPatch, disruption: Disruption | None) -> None:
    monkeypatch.setattr(view, "disruption_of", lambda _: disruption)


def drain(status: Status) -> Any:
    return status_to_dict(status, daemon="running")["drain"]


def test_a_drain_names_who_requested_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits while an update drains the node has not requested that drain."""
    idle = Status(since="03:00", desired="b").with_part(DrainProgress(PODS, "04:00", "Reboot"))

    def shown(status: Status) -> tuple[str, ...]:
        found = drain(status)
        assert [(pod["name"], pod["blocked"]) for pod in found["remaining"]] == [("b", True), ("a", False)]
        return tuple(found[key] for key in ("requester", "reason", "since", "deadline", "then"))

    disrupted(monkeypatch, OTHER)
    assert shown(idle) == ("jane", "disks", "02:00", "04:00", "Reboot")
    assert shown(replace(idle, phase=Phase.DRAINING)) == ("nodeagent", "update to b", "03:00", "04:00", "Reboot")
    disrupted(monkeypatch, None)
    assert shown(idle) == ("nodeagent", "update to b", "03:00", "04:00", "Reboot")


def test_it_lasts_while_the_node_is_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    draining = PhaseEntered(UpdateContext(Phase.DRAINING))
    status = fold(fold(Status(), draining), DrainAdvanced(PODS))
    assert remaining_of(fold(status, LeaseChanged(None))) == PODS
    assert remaining_of(fold(status, draining)) == PODS
    over = fold(status, PhaseEntered(UpdateContext(Phase.WRITING)))
    assert (over.part(DrainProgress), drain(over), remaining_of(over)) == (None, None, ())
    disrupted(monkeypatch, OTHER)
    status = fold(Status(), DrainAdvanced(PODS))
    assert remaining_of(fold(status, LeaseChanged(None))) == PODS
    disrupted(monkeypatch, replace(OTHER, draining=False, drained=True))
    assert fold(status, LeaseChanged(None)).part(DrainProgress) is None


def test_a_pod_that_blocks_for_long_is_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    disrupted(monkeypatch, OTHER)
    memory, event = NodeMemory(), DrainAdvanced(PODS)

    def notes(now: float) -> list[str]:
        status, memory.now = fold(memory.status, event), now
        found = [each.note for each in view_of(event).node_events(event, status, memory)]
        memory.status = status
        return found

    assert notes(0) == []
    assert notes(view.BLOCKED_FOR) == ["db/b: a disruption budget"]
    # The next drain.
    memory.status = Status()
    assert notes(view.BLOCKED_FOR + 1) == []


def test_what_a_drain_waits_for() -> None:
    def page(status: Status) -> list[str]:
        lines = render(samples(status, Counters(), "1")).splitlines()
        return [line for line in lines if line.startswith("nodeagent_drain")]

    assert page(Status(Phase.DRAINING).with_part(DrainProgress(PODS))) == ["nodeagent_drain_pods 2"]
    assert page(Status().with_part(DrainProgress())) == ["nodeagent_drain_pods 0"]
    assert page(Status()) == []
