# SPDX-License-Identifier: Apache-2.0
"""When etcd may lose the member on this host: the rule as a table, and what must hold of every cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.etcd.quorum import (
    Alarm,
    EtcdSurvey,
    Member,
    MemberState,
    judge,
    read_alarms,
    read_members,
    read_state,
    troubles,
)

OK = MemberState(leader="1", applied=100, index=100)


def cluster(voters: int, *, us: str = "2", leader: str = "1", **changed: MemberState) -> EtcdSurvey:
    """Members m1, m2, ...; ``changed`` by name."""
    members = [Member(str(number), f"m{number}") for number in range(1, voters + 1)]
    states = {member.id: changed.get(member.name, replace(OK, leader=leader)) for member in members}
    return EtcdSurvey(us, members, states)


def reasons(survey: EtcdSurvey, *, single: bool = False) -> list[str]:
    return [refusal.reason for refusal in judge(survey, single=single).refusals]


DOWN = MemberState(fault="does not answer")


@pytest.mark.parametrize(
    ("survey", "expected"),
    [
        (cluster(1, us="1"), ["EtcdNotRedundant"]),
        (cluster(2), ["EtcdNotRedundant"]),
        (cluster(3), []),
        (cluster(4), []),
        (cluster(5), []),
        (cluster(3, m3=DOWN), ["EtcdQuorumAtRisk"]),
        (cluster(3, m2=DOWN), []),  # the member that is down is the one that goes
        (cluster(4, m3=DOWN), ["EtcdQuorumAtRisk"]),
        (cluster(5, m3=DOWN), []),
        (cluster(5, m3=DOWN, m4=DOWN), ["EtcdQuorumAtRisk"]),
        (cluster(3, m3=replace(OK, leader="")), ["EtcdQuorumAtRisk"]),
        (cluster(3, m3=replace(OK, leader="3")), ["EtcdNoLeader"]),
        (cluster(3, us="1", m1=replace(DOWN, leader="1"), m2=OK, m3=OK), ["EtcdNoLeader"]),
        (cluster(3, m1=replace(OK, index=1100, applied=1100), m3=OK), []),
        (cluster(3, m1=replace(OK, index=1101, applied=1101), m3=OK), ["EtcdQuorumAtRisk"]),
        (replace(cluster(3), alarms=[Alarm("3", "NOSPACE")]), ["EtcdAlarm"]),
        (replace(cluster(3), us="9"), ["EtcdNotMember"]),
        (replace(cluster(3), unknown="no alarms"), ["EtcdUnreachable"]),
    ],
)
def test_the_rule(survey: EtcdSurvey, expected: list[str]) -> None:
    assert reasons(survey) == expected


def test_what_a_refusal_names() -> None:
    def words(survey: EtcdSurvey) -> list[str]:
        return [refusal.message for refusal in judge(survey, single=False).refusals]

    assert "its only voter" in words(cluster(1, us="1"))[0]
    assert "one of 2 voters" in words(cluster(2))[0]
    assert words(cluster(3, m3=DOWN))[0].endswith("(m3: does not answer)")


def test_single_allows_one_member_and_no_more() -> None:
    assert reasons(cluster(1, us="1", leader="1"), single=True) == []
    assert reasons(cluster(2), single=True) == ["EtcdNotRedundant"]
    assert reasons(cluster(3, m3=DOWN), single=True) == ["EtcdQuorumAtRisk"]
    alarmed = replace(cluster(1, us="1"), alarms=[Alarm("1", "CORRUPT")])
    assert reasons(alarmed, single=True) == ["EtcdAlarm"]


def test_a_change_of_the_membership() -> None:
    three = cluster(3)
    learner = replace(three, members=[*three.members, Member("4", "m4", learner=True)])
    assert reasons(learner) == ["EtcdLearner"]
    added = replace(three, members=[*three.members, Member("255")])
    assert reasons(added) == ["EtcdUnstarted", "EtcdQuorumAtRisk"]
    assert "member ff" in judge(added).refusals[0].message


def test_the_most_advanced_member_leads_next() -> None:
    survey = cluster(3, us="1", m2=OK, m3=replace(OK, applied=99), m1=OK)
    assert judge(survey).leader_to == "2"
    assert judge(replace(survey, us="2")).leader_to == ""


@given(
    voters=st.integers(1, 9),
    down=st.sets(st.integers(1, 9)),
    us=st.integers(1, 9),
    learners=st.integers(0, 2),
    alarm=st.booleans(),
)
def test_what_is_allowed_leaves_a_quorum(voters: int, down: set[int], us: int, learners: int, alarm: bool) -> None:
    us = min(us, voters)
    states = {f"m{number}": DOWN for number in down}
    left = set(range(1, voters + 1)) - down - {us}
    leader = us if us not in down else min(left, default=us)
    survey = cluster(voters, us=str(us), leader=str(leader), **states)
    more = [Member(str(20 + number), f"l{number}", learner=True) for number in range(learners)]
    survey = replace(survey, members=[*survey.members, *more], alarms=[Alarm("1", "NOSPACE")] if alarm else [])
    verdict = judge(survey)
    assert verdict.allowed == (2 * len(left) > voters and not learners and not alarm)
    if verdict.allowed and us not in down:
        assert int(verdict.leader_to) in left
        assert not troubles(survey)[verdict.leader_to]


def test_the_forms_of_the_gateway() -> None:
    listed = {"members": [{"ID": "9372538179322589801", "name": "a", "clientURLs": ["https://a:2379"]},
                          {"ID": "7", "peerURLs": ["https://b:2380"], "isLearner": True}]}  # fmt: skip
    assert read_members(listed) == (
        Member("9372538179322589801", "a", urls=("https://a:2379",)),
        Member("7", learner=True, peers=("https://b:2380",)),
    )
    status = {"header": {"member_id": "7"}, "leader": "0", "raftIndex": "12", "raftAppliedIndex": "11",
              "errors": ["memberID:7 alarm:NOSPACE ", "etcdserver: no leader", "disk on fire"]}  # fmt: skip
    assert read_state(status) == ("7", MemberState("disk on fire", "", 11, 12))
    assert read_alarms({"alarms": [{"memberID": "7", "alarm": "CORRUPT"}]}) == (Alarm("7", "CORRUPT"),)
    assert read_alarms({"header": {}}) == ()


@pytest.mark.parametrize("number", [-1, 2**64, "-1", str(2**64), "x", 1.0, True, None, 0, "0", ""])
def test_an_id_is_a_number_of_64_bits(number: object) -> None:
    with pytest.raises(ValueError, match=r"no (header|id|number of 64 bits)|invalid literal"):
        read_state({"header": {"member_id": number}})
    assert read_state({"header": {"member_id": str(2**64 - 1)}})[0] == str(2**64 - 1)


@pytest.mark.parametrize("data", [{}, {"members": []}, {"members": [{"name": "a"}]}])
def test_an_empty_member_list_is_rejected(data: Mapping[str, Any]) -> None:
    with pytest.raises(ValueError, match="no members"):
        read_members(data)


@pytest.mark.parametrize("urls", [7, [7], [None], "https://a:2379", {"https://a:2379": 1}])
def test_a_member_whose_addresses_are_no_list_of_texts_is_an_odd_answer(urls: object) -> None:
    with pytest.raises(ValueError, match="no list of texts"):
        read_members({"members": [{"ID": "1", "name": "a", "clientURLs": urls}]})
