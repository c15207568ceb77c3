# SPDX-License-Identifier: Apache-2.0
"""A survey of a host without a member, or with one that is down, and the answer of a survey."""

from __future__ import annotations

from pathlib import Path

from nodeagent.core.etcd.quorum import Alarm, EtcdSurvey, Member, MemberState, QuorumVerdict, Refusal
from nodeagent.features.etcd_guard.quorum import QuorumCheck, QuorumReport, answer
from nodeagent.host.clock import SystemClock
from nodeagent.reasons import Reason


async def test_nothing_is_here(tmp_path: Path) -> None:
    (tmp_path / "var/lib/etcd").mkdir(parents=True)
    report = await QuorumCheck(SystemClock(), root=tmp_path).survey()
    assert report == QuorumReport()
    assert report.verdict.allowed


async def test_a_member_that_is_down_is_known_by_its_data(tmp_path: Path) -> None:
    (tmp_path / "var/lib/etcd/member").mkdir(parents=True)
    report = await QuorumCheck(SystemClock(), root=tmp_path, timeout=0.5).survey()
    assert report.signs == ("data directory /var/lib/etcd",)
    assert [refusal.reason for refusal in report.verdict.refusals] == ["EtcdUnreachable"]


def test_the_answer_of_a_survey() -> None:
    members = [Member("1", "cp-1"), Member("2", "cp-2"), Member("3", "cp-3", learner=True)]
    states = {"1": MemberState(leader="1"), "2": MemberState(leader="1"), "3": MemberState(fault="does not answer")}
    survey = EtcdSurvey("1", members, states, alarms=[Alarm("2", "NOSPACE")])
    verdict = QuorumVerdict((Refusal(Reason.ETCD_ALARM, "cp-2 has no space"),), leader_to="2")
    found = answer(QuorumReport(("process 61",), verdict, survey), "daemon")
    assert (found["source"], found["member"], found["signs"]) == ("daemon", True, ["process 61"])
    assert (found["allowed"], found["leader_to"]) == (False, "cp-2")
    assert [(each["reason"], each["message"], bool(each["hint"])) for each in found["refusals"]] == [
        ("EtcdAlarm", "cp-2 has no space", True)
    ]
    assert found["alarms"] == [{"member": "cp-2", "kind": "NOSPACE"}]
    assert [
        (each["name"], each["this"], each["leader"], each["learner"], each["healthy"]) for each in found["members"]
    ] == [
        ("cp-1", True, True, False, True),
        ("cp-2", False, False, False, True),
        ("cp-3", False, False, True, False),
    ]
    assert found["members"][2]["trouble"] == "does not answer"
    assert answer(QuorumReport(("process 61",), QuorumVerdict(), survey), "daemon")["leader_to"] is None


def test_the_answer_without_a_survey() -> None:
    """No member is on this host, or none answers."""
    assert answer(QuorumReport(), "command") == {
        "schema": "nodeagent/etcd/v1",
        "source": "command",
        "member": False,
        "signs": [],
        "allowed": True,
        "refusals": [],
        "leader_to": None,
        "members": [],
        "alarms": [],
    }
    silent = QuorumVerdict((Refusal(Reason.ETCD_UNREACHABLE, "no member answers"),))
    found = answer(QuorumReport(("process 61",), silent), "command")
    assert (found["member"], found["allowed"], found["members"], found["alarms"]) == (True, False, [], [])
