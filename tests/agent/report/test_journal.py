# SPDX-License-Identifier: Apache-2.0
"""Entries of the journal. The message of each event is in ``journal.txt`` of the golden texts."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent import log
from nodeagent.agent.report.journal import to_journal
from nodeagent.report.status import Status
from nodeagent.report.views.registry import view_of, views
from nodeagent.update.ports import events
from nodeagent.update.ports.events import DeploymentsChanged, StagingAdvanced, StepProgress, UpdateContext
from nodeagent.update.states import Phase
from tests.support import examples
from tests.support.event_examples import BASE, CHANGES, EXAMPLES, ORDER
from tests.support.golden import Golden


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []

    def event(message_id: str, message: str, **fields: Any) -> None:
        entries.append({"id": message_id, "message": message, **fields})

    monkeypatch.setattr(log, "event", event)
    return entries


def test_progress_is_a_line_for_every_tenth_only(journal: list[dict[str, Any]]) -> None:
    step = StepProgress("Importing layers", 3, 51, 5)
    for routine in (False, True):
        to_journal(StagingAdvanced(UpdateContext(Phase.STAGING), step, 7, routine), Status())
    assert [entry["message"] for entry in journal] == ["staging: Importing layers (3/51)"] * 2
    assert [entry["priority"] for entry in journal] == [log.INFO, log.DEBUG]
    assert journal[0]["fetched_bytes"] == 7
    assert "routine" not in journal[0]


def test_the_packages_of_a_staged_deployment_are_no_field_of_the_entry(journal: list[dict[str, Any]]) -> None:
    to_journal(events.StagedInspected(CHANGES), Status(os_changes=CHANGES))
    assert "packages" not in str(journal[0].keys())


def test_the_message_of_each_event(golden: Golden) -> None:
    assert {type(event) for event in EXAMPLES} == set(views())
    for feature, shown in {"": BASE, **examples.by_feature("EVENTS")}.items():
        lines = [
            f"{type(event).__name__}: {view_of(event).sentence(event, Status(current='worker-1'))}\n" for event in shown
        ]
        golden("journal", "events", "".join(lines), feature=feature)


def test_deployments_are_no_field_of_the_entry(journal: list[dict[str, Any]]) -> None:
    to_journal(DeploymentsChanged(ORDER), Status(deployments=ORDER))
    assert "deployments" not in journal[0]
