"""Decide whether a member of etcd may start on this host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nodeagent.core.etcd.member_facts import (
    MemberFacts,
    data_lost,
    has_address,
    has_data_of,
    member_here,
    moved,
    same_name,
)
from nodeagent.core.etcd.quorum import EtcdSurvey, Member, Refusal
from nodeagent.core.etcd.versions import parse_version
from nodeagent.reasons import Reason

# The first release that stores a promotion: 3.6 refuses a member list with learners that were promoted before
# (etcd#19557, etcd#20793).
LEARNERS_KEPT: Final = (3, 5, 26)


@dataclass(frozen=True, slots=True)
class MemberStart:
    """A permission to start. ``initial_cluster`` is "" for a member with data: etcd does not read it then."""

    initial_cluster: str = ""


def decide_start(facts: MemberFacts) -> MemberStart | Refusal:
    """Decide whether etcd may start on this host, and with which members.

    This is the table of OpenShift's discover-etcd-initial-cluster with two more facts: the identity in the write-ahead
    log, and the note of this host.
    """
    data, note = facts.data, facts.note
    if facts.survey is None:
        if not data.present:
            return facts.unreachable
        if data.identity is None or (note is not None and note != data.identity):
            return Refusal(Reason.ETCD_DATA_FOREIGN, "the data are not those of the member that this host had")
        return MemberStart()
    member = member_here(facts)
    if member is not None and has_data_of(facts, member):
        return MemberStart() if has_address(facts, member) else moved(member)
    if member is None and not data.present:
        return Refusal(Reason.ETCD_NOT_MEMBER, f"no member of the cluster has the address {', '.join(facts.peers)}")
    if member is None and data.identity is not None and data.identity.cluster == facts.cluster:
        return Refusal(Reason.ETCD_REMOVED, f"member {int(data.identity.member):x} was removed from its cluster")
    # etcd would take it back under its old id, although it has forgotten its votes and what it had acknowledged.
    if member is not None and member.name and not member.learner:
        return data_lost(member)
    if data.present:
        return Refusal(Reason.ETCD_DATA_FOREIGN, "the data are those of another member, or of another cluster")
    assert member is not None
    if member.name:
        return data_lost(member)
    return same_name(facts, facts.survey, member.id) or MemberStart(_initial_cluster(facts, facts.survey, member))


def _initial_cluster(facts: MemberFacts, survey: EtcdSurvey, here: Member) -> str:
    """Return the members, which must be exactly those of the cluster, also such that never started."""
    pairs = []
    for member in survey.members:
        # etcd compares the addresses with those of the cluster, and no names (ValidateClusterAndAssignIDs). The names
        # only have to differ.
        name = facts.name if member.id == here.id else member.name or f"unstarted-{int(member.id):x}"
        pairs += [f"{name}={peer}" for peer in member.peers]
    return ",".join(pairs)


def check_version(version: str, survey: EtcdSurvey) -> Refusal | None:
    """Return why a member of this version cannot be added; None if it can, or if its version is unknown ("").

    It may be one minor release ahead of the oldest member, and never behind (etcd's "Upgrading").
    """
    ours = parse_version(version)
    members = [found for state in survey.states.values() if (found := parse_version(state.version))]
    if not ours or not members:
        return None
    oldest, newest = min(members), max(members)
    shown = ".".join(map(str, oldest))
    if ours[0] != oldest[0] or not newest[1] <= ours[1] <= oldest[1] + 1:
        return Refusal(Reason.ETCD_VERSION, f"etcd {version} cannot join a cluster with a member of version {shown}")
    if ours[:2] >= (3, 6) and oldest < LEARNERS_KEPT:
        return Refusal(Reason.ETCD_VERSION, f"a member has version {shown}; before 3.6 all must run 3.5.26 or later")
    return None
