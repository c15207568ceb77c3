# SPDX-License-Identifier: Apache-2.0
"""The next step of a member that joins, leaves or is replaced: the cases as tables, and what must hold of any facts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.etcd.data_directory import DataDirectory, Identity
from nodeagent.core.etcd.quorum import Alarm, EtcdSurvey, Member, MemberState, Refusal, judge
from nodeagent.errors import Cause
from nodeagent.features.etcd_members.decide.member_facts import UNREACHABLE, MemberFacts, check_version, decide_start
from nodeagent.features.etcd_members.decide.membership import (
    AddLearner,
    ArchiveData,
    Finished,
    MemberOperation,
    MoveLeader,
    OperationKind,
    Promote,
    RemoveMember,
    StartMember,
    Step,
    StopMember,
    UpdateAddress,
    begin,
    next_step,
    unattended_kind,
)
from nodeagent.features.etcd_members.reasons import MemberReason

OK = MemberState(leader="1", applied=100, index=100, cluster="9", version="3.6.8")
DOWN = MemberState(fault="does not answer")
HERE = "4"
OURS = Identity(HERE, "9")


def peer(number: int | str) -> str:
    return f"http://h{number}:2380"


def cluster(*members: Member, **states: MemberState) -> EtcdSurvey:
    """Voters m1, m2, m3 and ``members``; all are healthy that have started, unless ``states`` has another one."""
    every = [Member(str(n), f"m{n}", peers=(peer(n),)) for n in (1, 2, 3)] + list(members)
    known = {m.id: states.get(f"m{m.id}", OK) for m in every if m.name}
    return EtcdSurvey("", every, known)


def here(name: str = "m4", *, learner: bool = False, address: str = peer(4)) -> Member:
    return Member(HERE, name, learner, peers=(address,))


WITHOUT = cluster()
UNSTARTED = cluster(here("", learner=True))
LEARNER = cluster(here(learner=True))
VOTER = cluster(here())
EMPTY = DataDirectory()
DATA = DataDirectory(True, OURS)
OTHER_MEMBER = DataDirectory(True, Identity("77", "9"))
OTHER_CLUSTER = DataDirectory(True, Identity(HERE, "8"))
UNREADABLE = DataDirectory(True)
PROBLEM = Refusal("EtcdCertificates", "the certificate has ended")  # type: ignore[arg-type]


def facts(
    survey: EtcdSurvey | None,
    data: DataDirectory = EMPTY,
    note: Identity | None = None,
    *,
    running: bool = False,
    permitted: bool = False,
) -> MemberFacts:
    about = {"data": data, "note": note, "running": running, "permitted": permitted}
    return MemberFacts("m4", (peer(4),), survey, **about)  # type: ignore[arg-type]


def operation(kind: OperationKind, remove: str = "", **more: str) -> MemberOperation:
    return MemberOperation("1", kind, "root", "2026-01-01T00:00:00Z", remove, **more)


JOIN = operation(OperationKind.JOIN)
LEAVE = operation(OperationKind.LEAVE, HERE)
REPLACE = operation(OperationKind.REPLACE, HERE)


def shown(found: Step | Refusal | str | None) -> object:
    return str(found.reason) if isinstance(found, Refusal) else found


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        # In the list, name set, data: the table of OpenShift's discover-etcd-initial-cluster.
        (facts(UNSTARTED), f"m1={peer(1)},m2={peer(2)},m3={peer(3)},m4={peer(4)}"),
        (facts(UNSTARTED, OTHER_MEMBER), "EtcdDataForeign"),
        (facts(VOTER, DATA), ""),
        (facts(VOTER), "EtcdDataLost"),
        (facts(WITHOUT, OTHER_CLUSTER), "EtcdDataForeign"),
        (facts(WITHOUT, OTHER_MEMBER), "EtcdRemoved"),
        (facts(WITHOUT), "EtcdNotMember"),
        (facts(None, DATA), ""),
        (facts(None), "EtcdUnreachable"),
        # What it does not know: learners, the identity in the log, the note, the address.
        (facts(LEARNER, DATA), ""),
        (facts(LEARNER), "EtcdDataLost"),
        (facts(UNSTARTED, DATA), ""),
        (facts(VOTER, OTHER_MEMBER), "EtcdDataLost"),
        (facts(VOTER, OTHER_CLUSTER), "EtcdDataLost"),
        (facts(VOTER, UNREADABLE), "EtcdDataLost"),
        (facts(None, DATA, OURS), ""),
        (facts(None, DATA, Identity("77", "9")), "EtcdDataForeign"),
        (facts(None, UNREADABLE), "EtcdDataForeign"),
        (facts(cluster(here(address="http://elsewhere:2380")), DATA), "EtcdAddressDiffers"),
        (facts(cluster(here(""), Member("5", "m4", peers=(peer(5),)))), "EtcdConfigInvalid"),
        (
            facts(cluster(here(""), Member("5", peers=(peer(5),)))),
            f"m1={peer(1)},m2={peer(2)},m3={peer(3)},m4={peer(4)},unstarted-5={peer(5)}",
        ),
    ],
)
def test_whether_a_member_may_start(found: MemberFacts, expected: object) -> None:
    assert shown(decide_start(found)) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (facts(None), "EtcdUnreachable"),
        (facts(WITHOUT), AddLearner((peer(4),))),
        (replace(facts(WITHOUT), problem=PROBLEM), "EtcdCertificates"),
        (facts(WITHOUT, running=True), StopMember()),
        (facts(WITHOUT, OTHER_MEMBER, running=True), StopMember()),
        (facts(WITHOUT, OTHER_CLUSTER, running=True), "EtcdDataForeign"),  # the settings may name a wrong cluster
        (facts(WITHOUT, UNREADABLE, running=True), "EtcdStarting"),
        # The config that nodeagent wrote cannot make it a member of another cluster.
        (facts(WITHOUT, UNREADABLE, running=True, permitted=True), StopMember()),
        (facts(WITHOUT, OTHER_CLUSTER), ArchiveData()),
        (facts(WITHOUT, OTHER_MEMBER), ArchiveData()),
        (facts(WITHOUT, UNREADABLE), ArchiveData()),
        (facts(cluster(m3=DOWN)), "EtcdQuorumAtRisk"),
        (facts(cluster(Member("5", "m5", learner=True))), "EtcdLearner"),
        (facts(cluster(Member("5"))), "EtcdUnstarted"),
        (facts(cluster(Member("5", "m4", peers=(peer(5),)))), "EtcdConfigInvalid"),
        (facts(cluster(here(""), Member("5", "m4", peers=(peer(5),)))), "EtcdConfigInvalid"),
        (facts(replace(WITHOUT, alarms=[Alarm("1", "NOSPACE")])), "EtcdAlarm"),
        (facts(replace(WITHOUT, unknown="the alarms are not known")), "EtcdUnreachable"),
        (facts(UNSTARTED), StartMember(OURS, first=True)),
        (replace(facts(UNSTARTED), problem=PROBLEM), "EtcdCertificates"),
        (facts(UNSTARTED, running=True), "EtcdStarting"),
        (facts(UNSTARTED, UNREADABLE, running=True), "EtcdStarting"),
        (facts(UNSTARTED, UNREADABLE), ArchiveData()),
        (facts(UNSTARTED, OTHER_MEMBER, running=True), StopMember()),
        (facts(UNSTARTED, OTHER_MEMBER), ArchiveData()),
        (facts(UNSTARTED, DATA), StartMember(OURS)),
        (facts(LEARNER, DATA), StartMember(OURS)),
        (facts(LEARNER, DATA, running=True), Promote(HERE)),
        (facts(cluster(here(learner=True), m4=DOWN), DATA, running=True), "EtcdStarting"),
        (facts(cluster(here(learner=True), m4=replace(OK, fault="is not healthy")), DATA, running=True), Promote(HERE)),
        (facts(cluster(here(learner=True), m1=replace(OK, index=1100)), DATA, running=True), Promote(HERE)),
        (facts(cluster(here(learner=True), m1=replace(OK, index=1101)), DATA, running=True), "EtcdLearnerBehind"),
        (facts(LEARNER, note=OURS), RemoveMember(HERE)),  # its disk was lost
        (facts(LEARNER), "EtcdDataLost"),  # perhaps that of another host
        (facts(VOTER, note=OURS), "EtcdDataLost"),
        (facts(VOTER, DATA), StartMember(OURS)),
        (facts(VOTER, DATA, running=True), Finished(OURS)),
        (facts(cluster(here(), m4=replace(OK, leader="")), DATA, running=True), "EtcdStarting"),
        (facts(cluster(here(address="http://old:2380")), DATA), UpdateAddress(HERE, (peer(4),))),
        (facts(cluster(here(address="http://old:2380")), DATA, running=True), "EtcdAddressDiffers"),
        (facts(cluster(here(address="http://old:2380", learner=True)), DATA), RemoveMember(HERE)),
    ],
)
def test_a_join(found: MemberFacts, expected: object) -> None:
    assert shown(next_step(JOIN, found)) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (facts(None, DATA), "EtcdUnreachable"),
        (facts(VOTER, DATA, running=True), RemoveMember(HERE)),
        (facts(cluster(here(), m4=DOWN), DATA), RemoveMember(HERE)),
        (facts(cluster(here(), m3=DOWN), DATA, running=True), "EtcdQuorumAtRisk"),
        (facts(LEARNER, DATA, running=True), RemoveMember(HERE)),
        (facts(cluster(here(""))), RemoveMember(HERE)),
        (facts(replace(VOTER, alarms=[Alarm("1", "NOSPACE")]), DATA, running=True), "EtcdAlarm"),
        (facts(replace(VOTER, alarms=[Alarm(HERE, "CORRUPT")]), DATA, running=True), RemoveMember(HERE)),
        (facts(WITHOUT, DATA, running=True), StopMember()),
        (facts(WITHOUT, DATA), ArchiveData()),
        (facts(WITHOUT, OTHER_MEMBER, running=True), Finished()),
        (facts(WITHOUT), Finished()),
    ],
)
def test_a_leave(found: MemberFacts, expected: object) -> None:
    assert shown(next_step(LEAVE, found)) == expected


def test_a_leave_touches_no_data_of_a_member_that_was_added_again() -> None:
    again = Identity("1", "9")
    assert next_step(replace(LEAVE, remove="77"), facts(WITHOUT, DataDirectory(True, again))) == Finished(again)


def led_by(leader: str) -> EtcdSurvey:
    return cluster(here(), **{f"m{n}": replace(OK, leader=leader) for n in (1, 2, 3, 4)})


def test_a_leader_moves_the_leadership_before_it_leaves() -> None:
    assert next_step(LEAVE, facts(led_by(HERE), DATA, running=True)) == MoveLeader("3")
    assert next_step(LEAVE, facts(led_by("1"), DATA, running=True)) == RemoveMember(HERE)


def three(**states: MemberState) -> EtcdSurvey:
    """Three voters; m3 was on this host, or on one that is gone."""
    survey = cluster(**states)
    return replace(survey, members=[replace(m, peers=(peer(4),)) if m.id == "3" else m for m in survey.members])


@pytest.mark.parametrize(
    ("remove", "found", "expected"),
    [
        # The disk of m3, on this host, was lost: its process is down, or runs with its old identity.
        ("3", facts(three(m3=DOWN)), RemoveMember("3")),
        ("3", facts(three(), running=True), RemoveMember("3")),
        # One of three is dead and another one sick: an operator decides.
        ("3", facts(three(m3=DOWN, m2=DOWN)), "EtcdQuorumAtRisk"),
        ("3", facts(three(m3=DOWN, m2=replace(OK, leader=""))), "EtcdQuorumAtRisk"),
        # A host that is gone: m2 is dead, and this host is new.
        ("2", facts(cluster(m2=DOWN)), RemoveMember("2")),
        ("2", facts(cluster()), "EtcdMemberAlive"),
        # Removed; the rest is a join.
        ("7", facts(cluster(), running=True), StopMember()),
        ("7", facts(cluster(), OTHER_MEMBER), ArchiveData()),
        ("7", facts(cluster()), AddLearner((peer(4),))),
        ("7", facts(LEARNER, DATA, running=True), Promote(HERE)),
    ],
)
def test_a_replacement(remove: str, found: MemberFacts, expected: object) -> None:
    assert shown(next_step(replace(REPLACE, remove=remove), found)) == expected


def test_two_of_five_that_are_dead_are_removed_one_by_one() -> None:
    survey = cluster(Member("4", "m4", peers=(peer(4),)), Member("5", "m5"), m4=DOWN, m5=DOWN)
    assert next_step(replace(REPLACE, remove="5"), facts(survey)) == RemoveMember("5")
    dead_leader = replace(survey, states={**survey.states, "2": DOWN})
    assert shown(next_step(replace(REPLACE, remove="5"), facts(dead_leader))) == "EtcdQuorumAtRisk"


def test_a_join_that_was_given_up_removes_its_learner() -> None:
    given_up = operation(
        OperationKind.JOIN, HERE, added=HERE, failed=Cause(MemberReason.ETCD_STARTING, "it never started")
    )
    assert next_step(given_up, facts(UNSTARTED, running=True)) == RemoveMember(HERE)
    assert next_step(given_up, facts(WITHOUT, UNREADABLE, running=True)) == StopMember()
    assert next_step(given_up, facts(WITHOUT, UNREADABLE)) == ArchiveData()
    assert next_step(given_up, facts(WITHOUT)) == Finished()
    assert next_step(given_up, facts(VOTER, DATA, running=True)) == Finished(OURS)


@pytest.mark.parametrize(
    ("found", "left", "expected"),
    [
        (facts(None), False, None),
        (facts(WITHOUT), False, OperationKind.JOIN),
        (facts(WITHOUT), True, None),  # an operator took it away
        (facts(WITHOUT, note=OURS), False, "EtcdRemoved"),
        (facts(WITHOUT, OTHER_MEMBER), False, "EtcdRemoved"),
        (facts(WITHOUT, OTHER_CLUSTER), False, "EtcdDataForeign"),
        (facts(WITHOUT, UNREADABLE), False, "EtcdDataForeign"),
        (facts(WITHOUT, note=Identity(HERE, "8")), False, OperationKind.JOIN),
        (facts(UNSTARTED), False, OperationKind.JOIN),
        (facts(LEARNER, DATA, OURS, running=True), False, OperationKind.JOIN),
        (facts(LEARNER, note=OURS), False, OperationKind.JOIN),
        (facts(LEARNER), False, "EtcdDataLost"),
        (facts(VOTER, DATA, OURS), False, OperationKind.JOIN),
        (facts(VOTER, DATA, OURS, running=True), False, None),
        (facts(VOTER, note=OURS), False, OperationKind.REPLACE),  # a lost disk
        (facts(VOTER, OTHER_CLUSTER, OURS), False, OperationKind.REPLACE),
        (facts(VOTER), False, "EtcdDataLost"),
        (facts(VOTER, note=Identity("77", "9")), False, "EtcdDataLost"),
        (facts(VOTER, note=Identity(HERE, "8")), False, "EtcdDataLost"),
    ],
)
def test_what_a_host_begins_without_an_operator(found: MemberFacts, left: bool, expected: object) -> None:
    decided = unattended_kind(found, left=left)
    assert (str(decided.reason) if isinstance(decided, Refusal) else decided) == expected


def test_which_member_an_operation_removes() -> None:
    assert begin(JOIN, facts(None)) == Refusal("EtcdUnreachable", "no member answers")  # type: ignore[arg-type]
    assert begin(JOIN, facts(WITHOUT)) == JOIN
    plain = operation(OperationKind.REPLACE)
    for name in ("", "m4", HERE):
        assert begin(plain, facts(VOTER), name) == REPLACE
    survey = cluster(replace(here(), id="255"))
    assert begin(plain, facts(survey), "ff") == replace(REPLACE, remove="255")
    for found, name in ((facts(WITHOUT), ""), (facts(VOTER), "m9")):
        refused = begin(plain, found, name)
        assert isinstance(refused, Refusal)
        assert refused.reason == "EtcdNotMember"


@pytest.mark.parametrize(
    ("ours", "members", "allowed"),
    [
        ("", ["3.5.30"], True),
        ("3.6.8", [], True),
        ("3.6.8", ["3.6.8", "3.6.12"], True),
        ("3.6.8", ["3.5.26", "3.6.8"], True),
        ("3.6.8", ["3.5.25", "3.6.8"], False),  # promotions are not in its store
        ("3.5.30", ["3.5.30", "3.6.8"], False),
        ("3.5.9", ["3.4.30"], True),
        ("3.6.8", ["3.4.30"], False),
        ("3.7.0-rc.1", ["3.6.8"], True),
        ("4.0.0", ["3.6.8"], False),
        ("nonsense", ["3.6.8"], True),
    ],
)
def test_the_version_of_a_joiner(ours: str, members: list[str], allowed: bool) -> None:
    states = {str(n): replace(OK, version=version) for n, version in enumerate(members)}
    found = check_version(ours, EtcdSurvey("", (), states))
    assert (found is None) == allowed
    assert found is None or found.reason == "EtcdVersion"


STATES = st.sampled_from(
    [OK, DOWN, replace(OK, leader=""), replace(OK, leader="2"), replace(OK, applied=0, index=5000)]
)
IDENTITIES = st.sampled_from([None, OURS, Identity("1", "9"), Identity("77", "9"), Identity(HERE, "8")])


@st.composite
def any_facts(draw: st.DrawFn) -> MemberFacts:
    ids = draw(st.lists(st.sampled_from("1234567"), unique=True, max_size=5))
    members = [
        Member(n, draw(st.sampled_from(["", f"m{n}"])), draw(st.booleans()), peers=(peer(n),)) for n in sorted(ids)
    ]
    states = {member.id: draw(STATES) for member in members if member.name and draw(st.booleans())}
    survey = EtcdSurvey("", members, states) if members else None
    present = draw(st.booleans())
    data = DataDirectory(present, draw(IDENTITIES) if present else None)
    return MemberFacts("m4", (peer(4),), survey, UNREACHABLE, data, draw(IDENTITIES), draw(st.booleans()))


@given(any_facts())
def test_a_member_without_its_data_never_starts_with_its_old_identity(found: MemberFacts) -> None:
    start = decide_start(found)
    if isinstance(start, Refusal):
        return
    if found.data.identity is None:
        assert found.survey is not None
        (listed,) = (member for member in found.survey.members if member.id == HERE)
        assert listed.name == ""
        assert start.count("=") == len(found.survey.members)
    else:
        assert start == ""


@given(any_facts(), st.sampled_from(["", *"1234567"]), st.sampled_from(OperationKind))
def test_a_voter_is_removed_only_if_the_others_are_a_quorum(
    found: MemberFacts, remove: str, kind: OperationKind
) -> None:
    step = next_step(operation(kind, remove), found)
    if isinstance(step, RemoveMember) and found.survey is not None:
        (member,) = (each for each in found.survey.members if each.id == step.member)
        named = [replace(each, name="x") if each is member else each for each in found.survey.members]
        allowed = judge(replace(found.survey, us=member.id, members=named)).allowed
        assert member.learner or allowed


@given(any_facts(), st.sampled_from(["", *"1234567"]), st.sampled_from(OperationKind))
def test_data_of_a_listed_member_are_never_put_aside(found: MemberFacts, remove: str, kind: OperationKind) -> None:
    step = next_step(operation(kind, remove), found)
    if isinstance(step, ArchiveData) and found.survey is not None and found.data.identity is not None:
        same_cluster = found.cluster in ("", found.data.identity.cluster)
        assert found.data.identity.member not in [m.id for m in found.survey.members] or not same_cluster
        assert not found.running
