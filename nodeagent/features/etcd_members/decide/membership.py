# SPDX-License-Identifier: Apache-2.0
"""Decide the next step of a member of etcd that joins, leaves, or replaces a lost one.

The functions are pure and see one set of facts. They decide from the facts alone, so that a change of the membership
continues after a kill: the next facts show what was done. The rules:

- A member joins as a learner, and is promoted when it is at most ``MAX_LAG`` entries behind. etcd itself accepts 90 %
  of the index: on an old cluster, many thousands of entries may be missing (server.go, readyPercentThreshold).
- A dead member is removed before another is added: etcd refuses an add while a listed member is down (before 3.6.11,
  etcd#21667), and three voters of four are needed where two of two suffice.
- A voter that lost its data is removed, and added with a new id. etcd would accept it with the old one, but it has
  forgotten its votes and the entries that it had acknowledged.
- ``initial-cluster-state`` is ``existing`` without exception. A second ``new`` makes a second cluster.

The note of the member and its running operation are kept in the store as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from nodeagent import typed
from nodeagent.core.etcd.data_directory import Identity
from nodeagent.core.etcd.quorum import MAX_LAG, EtcdSurvey, Member, Refusal, judge, troubles
from nodeagent.errors import Cause
from nodeagent.features.etcd_members.decide.member_facts import (
    MemberFacts,
    data_lost,
    has_address,
    has_data_of,
    member_here,
    moved,
    same_name,
)
from nodeagent.features.etcd_members.reasons import MemberReason
from nodeagent.reasons import Reason


class OperationKind(StrEnum):
    JOIN = "join"
    LEAVE = "leave"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class MemberRequest:
    """``member``: name or id of the member to replace, "" for that of this host."""

    kind: OperationKind
    member: str = ""


@dataclass(frozen=True, slots=True)
class MemberOperation:
    """A change of the membership, as the store keeps it. Times are RFC 3339.

    ``remove`` is the id of the member to remove first. ``added`` is the id of the learner that was added. ``begun``: a
    step had an effect, so the operation is completed instead of dropped. ``failed`` is why a join was given up: from
    then on its learner is removed.
    """

    id: str
    kind: OperationKind
    requester: str
    since: str
    remove: str = ""
    added: str = ""
    begun: bool = False
    failed: Cause | None = None


@dataclass(frozen=True, slots=True)
class ArchiveData:
    """Rename the data in the data directory. It is never deleted."""


@dataclass(frozen=True, slots=True)
class AddLearner:
    # A voter that never starts would count against the quorum. A learner does not.
    peers: Sequence[str]


@dataclass(frozen=True, slots=True)
class StartMember:
    """Start etcd. ``identity`` is what the note must have before. ``first``: the member was added and never started."""

    identity: Identity
    first: bool = False


@dataclass(frozen=True, slots=True)
class StopMember:
    pass


@dataclass(frozen=True, slots=True)
class Promote:
    member: str


@dataclass(frozen=True, slots=True)
class MoveLeader:
    to: str


@dataclass(frozen=True, slots=True)
class RemoveMember:
    member: str


@dataclass(frozen=True, slots=True)
class UpdateAddress:
    member: str
    peers: Sequence[str]


@dataclass(frozen=True, slots=True)
class Finished:
    """Nothing is left to do. ``identity`` is that of the member on this host, None without one."""

    identity: Identity | None = None


# A request to a voter.
# A learner answers its status, serializable reads and snapshots, and no change of the membership.
ClusterStep: TypeAlias = AddLearner | Promote | MoveLeader | RemoveMember | UpdateAddress

Step: TypeAlias = ArchiveData | StartMember | StopMember | ClusterStep | Finished


def describe(step: Step) -> str:
    """Return a phrase about a step, for the journal and the status."""
    match step:
        case ArchiveData():
            return "renaming the data of an earlier member"
        case AddLearner():
            return f"adding a learner at {', '.join(step.peers)}"
        case StartMember():
            return f"starting member {int(step.identity.member):x}"
        case StopMember():
            return "stopping etcd"
        case Promote():
            return f"promoting member {int(step.member):x}"
        case MoveLeader():
            return f"moving the leadership to member {int(step.to):x}"
        case RemoveMember():
            return f"removing member {int(step.member):x}"
        case UpdateAddress():
            return f"changing the address of member {int(step.member):x} to {', '.join(step.peers)}"
        case Finished():
            return "nothing is left to do"


def begin(operation: MemberOperation, facts: MemberFacts, member: str = "") -> MemberOperation | Refusal:
    """Return the operation with the member that it removes. ``member`` names another one than that of this host."""
    if facts.survey is None:
        return facts.unreachable
    if operation.kind is OperationKind.JOIN:
        return operation
    # etcdctl prints ids in hexadecimal, and the JSON of etcd has them in decimal.
    members = facts.survey.members
    named = [other for other in members if member in (other.name, other.id, f"{int(other.id):x}")]
    removed = (named[0] if len(named) == 1 else None) if member else member_here(facts)
    if removed is None:
        what = f"the cluster has no member {member}" if member else "no member of the cluster is on this host"
        return Refusal(Reason.ETCD_NOT_MEMBER, what)
    return replace(operation, remove=removed.id)


def unattended_kind(facts: MemberFacts, *, left: bool) -> OperationKind | Refusal | None:
    """Return the operation that this host begins without an operator; None if there is nothing to do.

    ``left``: an operator took the member away, so it stays away. A member that was removed elsewhere stays away too.
    A lost disk is recognized by the note: without it, the member may be that of another host.
    """
    if left or facts.survey is None:
        return None
    member, data, note = member_here(facts), facts.data, facts.note
    if member is None:
        removed = data.identity or note
        if removed is not None and removed.cluster == facts.cluster:
            return Refusal(MemberReason.ETCD_REMOVED, f"member {int(removed.member):x} was removed from its cluster")
        if data.present:
            return Refusal(MemberReason.ETCD_DATA_FOREIGN, "the data are those of a member of another cluster")
        return OperationKind.JOIN
    if has_data_of(facts, member):
        # A member with its data that does not run is joined, too: the operation starts it.
        done = facts.running and not member.learner
        return None if done else OperationKind.JOIN
    if not member.name:
        return OperationKind.JOIN
    if note != Identity(member.id, facts.cluster):
        return data_lost(member)
    # A learner has no vote that it could have forgotten, so its own operation removes and adds it.
    return OperationKind.JOIN if member.learner else OperationKind.REPLACE


def next_step(operation: MemberOperation, facts: MemberFacts) -> Step | Refusal:
    """Return the next step, or why there is none yet."""
    if facts.survey is None:
        return facts.unreachable
    target = next((member for member in facts.survey.members if member.id == operation.remove), None)
    if target is not None and operation.failed and not target.learner:
        # It was promoted, and counts as a member from then on.
        return Finished(Identity(target.id, facts.cluster))
    if target is not None:
        return _remove(target, facts, facts.survey)
    if operation.kind is OperationKind.LEAVE or operation.failed:
        return _clear(operation, facts)
    return _join(operation, facts, facts.survey)


def _remove(target: Member, facts: MemberFacts, survey: EtcdSurvey) -> Step | Refusal:
    here = member_here(facts)
    if target.learner:
        # A learner has no vote, so no quorum changes.
        return RemoveMember(target.id)
    if (here is None or here.id != target.id) and not troubles(survey)[target.id]:
        return Refusal(MemberReason.ETCD_MEMBER_ALIVE, f"{target.title} is healthy, and is not the member of this host")
    # Its own alarm, or that it never started, is no reason to keep a member: a corrupt one is replaced.
    alarms = tuple(alarm for alarm in survey.alarms if alarm.member != target.id)
    titled = replace(target, name=target.title)
    members = tuple(titled if member.id == target.id else member for member in survey.members)
    verdict = judge(replace(survey, us=target.id, members=members, alarms=alarms))
    if verdict.refusals:
        message = "; ".join(refusal.message for refusal in verdict.refusals)
        return Refusal(verdict.refusals[0].reason, message)
    return MoveLeader(verdict.leader_to) if verdict.leader_to else RemoveMember(target.id)


def _clear(operation: MemberOperation, facts: MemberFacts) -> Step:
    member, identity = member_here(facts), facts.data.identity
    if member is not None and has_data_of(facts, member):
        # In the meantime an operator added this host again.
        return Finished(Identity(member.id, facts.cluster))
    if identity is not None and identity.member not in (operation.remove, operation.added):
        # The data, and the process, are not those of the removed member.
        return Finished()
    if facts.running:
        return StopMember()
    return ArchiveData() if facts.data.present else Finished()


def _join(operation: MemberOperation, facts: MemberFacts, survey: EtcdSurvey) -> Step | Refusal:
    member = member_here(facts)
    if member is None:
        return _add(facts, survey)
    identity = Identity(member.id, facts.cluster)
    if has_data_of(facts, member):
        return _continue(member, identity, facts, survey)
    if member.name and not member.learner:
        return data_lost(member)
    if facts.data.present:
        # etcd reads its id from existing data and ignores ``initial-cluster``, so it would start as the earlier
        # member.
        if facts.running and facts.data.identity is None:
            return Refusal(MemberReason.ETCD_STARTING, f"{member.title} is starting")
        return StopMember() if facts.running else ArchiveData()
    if member.name:
        ours = (operation.added, facts.note.member if facts.note is not None else "")
        # It acknowledged entries that it lost.
        return RemoveMember(member.id) if member.id in ours else data_lost(member)
    if (problem := facts.problem or same_name(facts, survey, member.id)) is not None:
        return problem
    return _running(member, facts) if facts.running else StartMember(identity, first=True)


def _add(facts: MemberFacts, survey: EtcdSurvey) -> Step | Refusal:
    if facts.running:
        return _stop(facts)
    if facts.data.present:
        return ArchiveData()
    if (problem := facts.problem or same_name(facts, survey)) is not None:
        return problem
    wrong = troubles(survey)
    # etcd refuses most of these itself, as ``unhealthy cluster``, without the name of a member.
    for alarm in survey.alarms:
        return Refusal(Reason.ETCD_ALARM, f"alarm {alarm.kind} of {survey.title(alarm.member)}")
    for member in survey.members:
        if member.learner:
            return Refusal(Reason.ETCD_LEARNER, f"{member.title} is a learner, and etcd allows one at a time")
        if not member.name:
            return Refusal(Reason.ETCD_UNSTARTED, f"{member.title} was added and has not started yet")
        if wrong[member.id]:
            return Refusal(Reason.ETCD_QUORUM_AT_RISK, f"{member.title}: {wrong[member.id]}")
    if survey.unknown:
        return Refusal(Reason.ETCD_UNREACHABLE, survey.unknown)
    return AddLearner(tuple(facts.peers))


def _stop(facts: MemberFacts) -> Step | Refusal:
    """Stop a removed member. One of another cluster keeps running: the settings may name the wrong cluster."""
    identity = facts.data.identity
    if identity is None and facts.data.present and not facts.permitted:
        return Refusal(MemberReason.ETCD_STARTING, "etcd runs, and its write-ahead log has no identity yet")
    if identity is not None and identity.cluster != facts.cluster:
        return Refusal(MemberReason.ETCD_DATA_FOREIGN, "etcd runs on this host as a member of another cluster")
    return StopMember()


def _continue(member: Member, identity: Identity, facts: MemberFacts, survey: EtcdSurvey) -> Step | Refusal:
    """Start or promote a member that has its data."""
    if not has_address(facts, member):
        if facts.running:
            return moved(member)
        # Before 3.5.31 and 3.6.12, an update made a learner a voter that cannot be promoted (etcd#21694).
        return RemoveMember(member.id) if member.learner else UpdateAddress(member.id, tuple(facts.peers))
    if not facts.running:
        return StartMember(identity)
    state = survey.states.get(member.id)
    if state is None or not state.applied:
        return _running(member, facts)
    if not member.learner:
        wrong = troubles(survey)[member.id]
        return Refusal(MemberReason.ETCD_STARTING, f"{member.title}: {wrong}") if wrong else Finished(identity)
    lag = max(other.index for other in survey.states.values()) - state.applied
    if lag > MAX_LAG:
        return Refusal(Reason.ETCD_LEARNER_BEHIND, f"{member.title} is {lag} entries behind")
    return Promote(member.id)


def _running(member: Member, facts: MemberFacts) -> Refusal:
    return Refusal(MemberReason.ETCD_STARTING, f"{member.title} ({facts.name}) runs and does not answer yet")


NOTE_KEY = "etcd-member"
OPERATION_KEY = "etcd-operation"
# Of the operation of a lease, before the id.
LEASE_PREFIX = "etcd."


@dataclass(frozen=True, slots=True)
class MemberNote:
    """``member`` and ``cluster`` are the ids that this host had last, "" for none. ``left``: an operator took it away.

    It is outside the data directory, so that a lost disk is recognized.
    """

    member: str = ""
    cluster: str = ""
    left: bool = False

    @property
    def identity(self) -> Identity | None:
        return Identity(self.member, self.cluster) if self.member else None


def to_text(value: MemberNote | MemberOperation) -> str:
    return json.dumps(asdict(value), sort_keys=True)


def note_from_text(text: str) -> MemberNote:
    """Return the empty note for "". Raises ``ValueError`` and ``TypeError``."""
    if not text:
        return MemberNote()
    note = typed.from_json(text, MemberNote)
    # A stored note has all keys, whatever their values.
    if text == "{}" or not (_is_id(note.member) and _is_id(note.cluster)):
        raise ValueError("the note of the etcd member has no valid id")
    return note


def operation_from_text(text: str) -> MemberOperation | None:
    """Return None for "". Raises ``ValueError`` and ``TypeError``."""
    if not text:
        return None
    # An unknown kind is an error: this agent could not end what a newer one began.
    operation = typed.from_json(text, MemberOperation)
    if not (_is_id(operation.remove) and _is_id(operation.added)):
        raise ValueError("the operation of the etcd member has no valid id")
    if datetime.fromisoformat(operation.since).tzinfo is None:
        raise ValueError("the time of the operation has no zone")
    return operation


def _is_id(value: object) -> bool:
    # Python counts digits of other scripts as decimal, too.
    return isinstance(value, str) and (not value or (value.isdecimal() and value.isascii()))
