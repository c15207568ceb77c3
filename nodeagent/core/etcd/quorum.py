# SPDX-License-Identifier: Apache-2.0
"""Judge by a survey of etcd whether this host may be disrupted without a loss of the quorum.

It may if the other voters that are healthy now are a quorum of all voters. A learner, or a member that never started,
means that an operator or a controller changes the membership, and an alarm needs an operator: both are refused. The
member on this host must not lead; the verdict names its successor. The rule is that of cluster-etcd-operator
(IsQuorumFaultTolerant), counted without this member.

Ids are the decimal strings of etcd's JSON gateway, "" for none. Nothing here is a secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason

# Entries of the log that a healthy member may be behind. etcd itself stops taking writes at 5000 between commit and
# apply (v3_server.go, maxGapBetweenApplyAndCommitIndex).
MAX_LAG = 1000


@dataclass(frozen=True, slots=True)
class Member:
    id: str
    # Empty until the member has started for the first time.
    name: str = ""
    learner: bool = False
    urls: Sequence[str] = ()
    peers: Sequence[str] = ()

    @property
    def title(self) -> str:
        # The form of etcdctl.
        return self.name or f"member {int(self.id):x}"


@dataclass(frozen=True, slots=True)
class MemberState:
    """The status of a member. ``fault`` is the error of the request, or those that the member reports."""

    fault: str = ""
    leader: str = ""
    applied: int = 0
    index: int = 0
    cluster: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Alarm:
    member: str
    # NOSPACE, CORRUPT.
    kind: str


@dataclass(frozen=True, slots=True)
class EtcdSurvey:
    """``us`` is the id of the member on this host. A member without a state has not answered. ``unknown`` is a message
    about an incomplete survey."""

    us: str
    members: Sequence[Member]
    states: Mapping[str, MemberState] = field(default_factory=dict)
    alarms: Sequence[Alarm] = ()
    unknown: str = ""

    def title(self, member: str) -> str:
        return next((candidate.title for candidate in self.members if candidate.id == member), f"member {member}")


@dataclass(frozen=True, slots=True)
class Refusal:
    """``reason`` is stable; ``message`` names members."""

    reason: AnyReason
    message: str


@dataclass(frozen=True, slots=True)
class QuorumVerdict:
    """``refusals``: the most urgent first. ``leader_to`` is the member that must lead before this one stops, "" if this
    one does not lead."""

    refusals: Sequence[Refusal] = ()
    leader_to: str = ""

    @property
    def allowed(self) -> bool:
        return not self.refusals


def judge(survey: EtcdSurvey, *, single: bool = False) -> QuorumVerdict:
    """Return the verdict. ``single`` allows the disruption of a single-member cluster."""
    refusals = [
        *_alarms(survey),
        *_changes(survey),
        *_quorum(survey, single=single),
        *_leadership(survey),
    ]
    # Last, because a reason that is known is more useful than one that is missing.
    if survey.unknown:
        refusals.append(Refusal(Reason.ETCD_UNREACHABLE, survey.unknown))
    if refusals:
        return QuorumVerdict(tuple(refusals))
    return QuorumVerdict(leader_to=_successor(survey))


def troubles(survey: EtcdSurvey) -> Mapping[str, str]:
    """Return the trouble of each member, by id; "" for a healthy one."""
    last = max((state.index for state in survey.states.values()), default=0)
    return {member.id: _trouble(member, survey.states.get(member.id), last) for member in survey.members}


def _trouble(member: Member, state: MemberState | None, last: int) -> str:
    if member.name == "":
        return "has not started yet"
    if state is None:
        return "has no known state"
    if state.fault:
        return state.fault
    if not state.leader:
        return "has no leader"
    # A member that is far behind cannot serve as part of the quorum soon.
    if last - state.applied > MAX_LAG:
        return f"is {last - state.applied} entries behind"
    return ""


def _alarms(survey: EtcdSurvey) -> Iterable[Refusal]:
    # With NOSPACE the cluster takes no writes, and with CORRUPT members have different data. A restart mends neither.
    for alarm in survey.alarms:
        yield Refusal(Reason.ETCD_ALARM, f"alarm {alarm.kind} of {survey.title(alarm.member)}")


def _changes(survey: EtcdSurvey) -> Iterable[Refusal]:
    if survey.us not in {member.id for member in survey.members}:
        yield Refusal(Reason.ETCD_NOT_MEMBER, "the member on this host is not one of its cluster")
    for member in survey.members:
        # What a quorum is changes with the end of a join or a leave, so none may be under way.
        if member.learner:
            yield Refusal(Reason.ETCD_LEARNER, f"{member.title} is a learner: the membership is being changed")
        elif not member.name:
            yield Refusal(Reason.ETCD_UNSTARTED, f"{member.title} was added and has not started yet")


def _quorum(survey: EtcdSurvey, *, single: bool) -> Iterable[Refusal]:
    voters = [member for member in survey.members if not member.learner]
    quorum = len(voters) // 2 + 1
    # The admin has allowed that etcd is down during the disruption.
    if len(voters) == 1 and single:
        return
    # Even if all others are healthy, the cluster would stop. Two members are never enough.
    if len(voters) - 1 < quorum:
        what = "its only voter" if len(voters) == 1 else f"one of {len(voters)} voters, all of which it needs"
        yield Refusal(Reason.ETCD_NOT_REDUNDANT, f"etcd would lose {what}")
        return
    wrong = troubles(survey)
    others = [member for member in voters if member.id != survey.us]
    healthy = [member for member in others if not wrong[member.id]]
    if len(healthy) < quorum:
        bad = "; ".join(f"{member.title}: {wrong[member.id]}" for member in others if wrong[member.id])
        numbers = f"without this member {len(healthy)} healthy voters are left, and {quorum} are needed"
        yield Refusal(Reason.ETCD_QUORUM_AT_RISK, f"{numbers} ({bad})" if bad else numbers)


def _leadership(survey: EtcdSurvey) -> Iterable[Refusal]:
    leaders = {state.leader for state in survey.states.values() if not state.fault and state.leader}
    if len(leaders) > 1:
        yield Refusal(Reason.ETCD_NO_LEADER, "the members do not agree who leads")
    elif leaders == {survey.us} and survey.states.get(survey.us, MemberState("silent")).fault:
        yield Refusal(Reason.ETCD_NO_LEADER, "the member on this host leads, and does not answer")


def _successor(survey: EtcdSurvey) -> str:
    """Return the voter that has most of the log; "" if this member does not lead, or if there is no other."""
    ours = survey.states.get(survey.us)
    if ours is None or ours.leader != survey.us:
        return ""
    wrong = troubles(survey)
    fit = [m.id for m in survey.members if m.id != survey.us and not m.learner and not wrong[m.id]]
    # The id breaks ties, so that each survey names the same member.
    return max(fit, key=lambda member: (survey.states[member].applied, member), default="")


def read_members(data: Mapping[str, Any]) -> Sequence[Member]:
    """Read the answer of ``/v3/cluster/member/list``.

    Raises ``ValueError`` for one without members, with two of one id, or with a value of another type.
    """
    members = tuple(map(_member, data.get("members") or ()))
    if len({member.id for member in members}) < max(1, len(members)):
        raise ValueError("no members, or one of them twice")
    return members


def _member(value: object) -> Member:
    # A member that cannot be read may be one that the quorum needs.
    if not (isinstance(value, Mapping) and value.get("ID")):
        raise ValueError("no members")
    return Member(
        id=_id(value["ID"]),
        name="".join(_texts([value.get("name") or ""])),
        learner=bool(value.get("isLearner")),
        urls=_texts(value.get("clientURLs") or ()),
        peers=_texts(value.get("peerURLs") or ()),
    )


def _texts(values: object) -> tuple[str, ...]:
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise ValueError("no list of texts")
    return tuple(values)


def read_state(data: Mapping[str, Any]) -> tuple[str, MemberState]:
    """Read the answer of ``/v3/maintenance/status``: the member and its state. Raises ``ValueError``."""
    header = data.get("header")
    if not isinstance(header, Mapping) or not header.get("member_id"):
        raise ValueError("no header")
    leader = _number(data.get("leader"))
    errors = [str(error) for error in data.get("errors") or ()]
    # Alarms and a missing leader are known from other requests, with more detail.
    errors = [error for error in errors if "alarm:" not in error and "no leader" not in error]
    return _id(header["member_id"]), MemberState(
        fault="; ".join(errors),
        leader=str(leader) if leader else "",
        applied=_number(data.get("raftAppliedIndex")),
        index=_number(data.get("raftIndex")),
        cluster=str(_number(header.get("cluster_id")) or ""),
        version=str(data.get("version") or ""),
    )


def read_alarms(data: Mapping[str, Any]) -> Sequence[Alarm]:
    """Read the answer of ``/v3/maintenance/alarm``."""
    return tuple(
        Alarm(str(alarm.get("memberID") or ""), str(alarm.get("alarm")))
        for alarm in data.get("alarms") or ()
        if alarm.get("alarm") not in (None, "NONE")
    )


def _id(value: object) -> str:
    if not (number := _number(value)):
        raise ValueError("no id")
    return str(number)


def _number(value: object) -> int:
    """Return a 64-bit number, which is a string in JSON. A zero is left out. Raises ``ValueError``."""
    number = int(value) if isinstance(value, int | str) and not isinstance(value, bool) else 0
    if not 0 <= number < 2**64:
        raise ValueError("no number of 64 bits")
    return number


def member_trouble(survey: EtcdSurvey, expected: str = "") -> str:
    """Return the trouble of the member on this host, "" for a healthy one.

    ``expected`` is its id from before the change, "" if it is not known. A member with another id has lost its data.
    """
    ours = [member for member in survey.members if member.id == survey.us]
    if not ours:
        return "the member on this host is not one of its cluster"
    (member,) = ours
    if expected and member.id != expected:
        return f"it is another member than before: {int(member.id):x}, not {int(expected):x}"
    # A learner has no vote, and ``/health`` of it is true.
    if member.learner:
        return f"{member.title} is a learner"
    trouble = troubles(survey)[member.id]
    return f"{member.title} {trouble}" if trouble else ""
