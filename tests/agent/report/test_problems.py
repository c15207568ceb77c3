# SPDX-License-Identifier: Apache-2.0
"""Problems that do not stop the agent: reported once each, and until they are solved."""

from __future__ import annotations

from nodeagent.agent.report.report import Report
from nodeagent.errors import InvalidInput, Problem
from nodeagent.reasons import Reason
from nodeagent.report.status import Status
from nodeagent.report.status_line import line
from nodeagent.update.ports.events import Event
from tests.support.schemas import status_to_dict


def test_a_problem_is_reported_once_and_until_it_is_solved() -> None:
    report, events = Report(Status()), list[Event]()
    report.add(lambda event, _: events.append(event))
    bad = InvalidInput("bad", reason=Reason.SETTINGS_INVALID, problems=[Problem("/x:1", "unknown key y")])
    report.problem("settings", bad)
    report.problem("settings", bad)
    assert len(events) == 1
    assert status_to_dict(report.status, daemon="running")["problems"] == [
        {"topic": "settings", "reason": "SettingsInvalid", "message": "bad; /x:1: unknown key y"}
    ]
    assert line(report.status) == "Idle: problem: SettingsInvalid: bad; /x:1: unknown key y"
    report.problem("settings", InvalidInput("worse", reason=Reason.SETTINGS_INVALID))
    assert [found.message for found in report.status.problems] == ["worse"]
    report.solved("settings", "the settings are valid again")
    report.solved("settings", "the settings are valid again")
    assert (report.status.problems, len(events)) == ((), 3)
