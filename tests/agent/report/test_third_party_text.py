# SPDX-License-Identifier: Apache-2.0
"""Text from inhibitors, lease holders and other programs is shown in one harmless line everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nodeagent import log
from nodeagent.agent.report.journal import to_journal, to_notify
from nodeagent.agent.report.report import Report
from nodeagent.errors import Refused
from nodeagent.report.counters import Counters
from nodeagent.report.exposition import render
from nodeagent.report.metrics import samples
from nodeagent.report.status import Status
from nodeagent.report.status_line import line
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.events import Event, HostDegraded, LeaseChanged, UpdateContext, UpdateWaiting
from nodeagent.update.states import Phase
from tests.support import examples
from tests.support.schemas import status_to_dict
from tests.support.third_party import BAD


def texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for item in pair for text in texts(item)]
    return [text for item in value for text in texts(item)] if isinstance(value, list | tuple) else []


def harmless(value: Any) -> bool:
    return all(text.isprintable() and len(text) < 2500 for text in texts(value))


EVENTS = [
    UpdateWaiting(UpdateContext(Phase.REBOOTING), f"the reboot is blocked by {BAD}", "RebootBlocked"),
    LeaseChanged(Holder(BAD, "op", BAD, "")),
    HostDegraded(UpdateContext(Phase.DEGRADED), BAD, "OsBusy"),
    *examples.listed("THIRD_PARTY"),
]


@pytest.mark.finding(
    "daemon: words that others choose",
    "Words that others choose are bounded, on one line and without control characters in the journal, `STATUS=`, "
    "D-Bus and metrics.",
)
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_wherever_events_go(
    event: Event, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entries: list[Any] = []
    lines: list[str] = []
    report = Report(Status())
    monkeypatch.setattr("nodeagent.log.Lines.send", lambda _self, entry: entries.append(dict(entry)))
    log.setup("debug")
    report.add(to_journal)
    report.add(to_notify(lines.append))
    report.emit(event)
    log.setup()
    assert entries
    assert harmless([{key: value for key, value in entry.items() if key != "traceback"} for entry in entries])
    assert harmless(lines)
    assert harmless(status_to_dict(report.status, daemon="running"))
    assert harmless(line(report.status))
    page = render(samples(report.status, Counters(), "1"))
    assert harmless(page.splitlines())
    assert harmless(json.loads(json.dumps(status_to_dict(report.status, daemon="running"))))


def test_a_problem_is_reported_once() -> None:
    report = Report(Status())
    seen: list[Event] = []
    report.add(lambda event, _status: seen.append(event))
    for _ in range(2):
        report.problem("policy", Refused(BAD, reason="Some"))
    assert len(seen) == 1


def test_a_holder_is_reported_once() -> None:
    report = Report(Status())
    seen: list[Event] = []
    report.add(lambda event, _status: seen.append(event))
    for _ in range(2):
        report.lease(Holder(BAD, "op", BAD, ""))
    assert len(seen) == 1


@pytest.mark.finding(
    "daemon: words that others choose",
    "Words that others choose are bounded, on one line and without control characters in the journal, `STATUS=`, "
    "D-Bus and metrics.",
)
def test_entries_that_are_no_events(capsys: pytest.CaptureFixture[str]) -> None:
    log.get("x").warning(f"users could not be warned: {BAD}", path=BAD)
    text = capsys.readouterr().err
    assert "\x1b" not in text
    assert text.count("\n") == 1
