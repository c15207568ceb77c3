"""What the journal gets of an update of the OS."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent import log
from nodeagent.agent.report.journal import to_journal
from nodeagent.core.plan.deployment import Deployment
from nodeagent.core.report.status import Status
from nodeagent.core.update.events import Event, EventKind, StepProgress
from nodeagent.core.update.phase import Phase


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []

    def event(kind: EventKind, message: str, **fields: Any) -> None:
        entries.append({"kind": kind, "message": message, **fields})

    monkeypatch.setattr(log, "event", event)
    return entries


def test_progress_is_a_line_for_every_tenth_only(journal: list[dict[str, Any]]) -> None:
    step = StepProgress("Importing layers", 3, 51, 5)
    for often in (False, True):
        fields = {"often": often, "fetched_bytes": 7}
        to_journal(Event(EventKind.STAGING, Phase.STAGING, step=step, fields=fields), Status())
    assert [entry["message"] for entry in journal] == ["staging: Importing layers (3/51)"] * 2
    assert [entry["priority"] for entry in journal] == [None, log.DEBUG]
    assert journal[0]["fetched_bytes"] == 7
    assert "often" not in journal[0]


def test_deployments_are_named_as_people_know_them(journal: list[dict[str, Any]]) -> None:
    order = (
        Deployment("a.1", "c1", "os", version="41.2", staged=True),
        Deployment("a.0", "c0", "os", digest="sha256:d0", booted=True),
        Deployment("a.9", "c9", "os"),
    )
    event = Event(EventKind.DEPLOYMENTS, Phase.IDLE, fields={"deployments": order})
    to_journal(event, Status(deployments=order))
    assert journal[0]["message"] == "deployments, in boot order: 41.2 (staged); sha256:d0 (booted); c9"
    assert "deployments" not in journal[0]
