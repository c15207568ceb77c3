# SPDX-License-Identifier: Apache-2.0
"""What is known about the member of etcd on this host, and whether it may start.

``DataDirectory`` must be read after the list of members: only then is a listed name without data a lost disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nodeagent.core.etcd.data_directory import DataDirectory, Identity
from nodeagent.core.etcd.quorum import EtcdSurvey, Member, Refusal
from nodeagent.core.etcd.versions import parse_version
from nodeagent.features.etcd_members.reasons import MemberReason
from nodeagent.reasons import Reason

NO_DATA: Final = DataDirectory()
UNREACHABLE: Final = Refusal(Reason.ETCD_UNREACHABLE, "no member answers")


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """The facts about the member of this host, running or not.

    ``survey`` is None if no member of the cluster answers; ``unreachable`` has the reason. ``note`` is the identity
    that this host had last, from the store. ``permitted``: etcd runs with the config that nodeagent wrote, so it cannot
    be that of another cluster. ``problem`` prevents the addition of this member: its certificates, or its version.
    """

    name: str
    peers: Sequence[str]
    survey: EtcdSurvey | None = None
    unreachable: Refusal = UNREACHABLE
    data: DataDirectory = NO_DATA
    # In the store, because a lost disk takes the data directory with it.
    note: Identity | None = None
    running: bool = False
    permitted: bool = False
    problem: Refusal | None = None

    @property
    def cluster(self) -> str:
        """The id of the cluster that answers, "" if none does."""
        states = self.survey.states.values() if self.survey is not None else ()
        return next((state.cluster for state in states if state.cluster), "")


def member_here(facts: MemberFacts) -> Member | None:
    """Return the member of this host: that of its data, or else that with its peer address."""
    if facts.survey is None:
        return None
    # The write-ahead log names its member. An address may belong to another host by now.
    by_data = next((member for member in facts.survey.members if has_data_of(facts, member)), None)
    return by_data or next((member for member in facts.survey.members if has_address(facts, member)), None)


def has_data_of(facts: MemberFacts, member: Member) -> bool:
    identity = facts.data.identity
    # An id says nothing in another cluster.
    return identity is not None and identity.member == member.id and facts.cluster in ("", identity.cluster)


def has_address(facts: MemberFacts, member: Member) -> bool:
    # A member may have several addresses, of which one is enough.
    return not set(facts.peers).isdisjoint(member.peers)


def moved(member: Member) -> Refusal:
    text = f"the cluster knows {member.title} by {', '.join(member.peers)}, and its config has another address"
    return Refusal(MemberReason.ETCD_ADDRESS_DIFFERS, text)


def same_name(facts: MemberFacts, survey: EtcdSurvey, here: str = "") -> Refusal | None:
    """Return why no member of this name may be added. ``here`` is the id of the member of this host."""
    # etcd takes the addresses of both for those of one member, and does not start (etcd#5244).
    others = [member for member in survey.members if member.name == facts.name and member.id != here]
    if not others:
        return None
    return Refusal(MemberReason.ETCD_CONFIG_INVALID, f"{others[0].title} has the same name as this host")


def data_lost(member: Member) -> Refusal:
    text = f"{member.title} (member {int(member.id):x}) has run before, and its data are not in the data directory"
    return Refusal(Reason.ETCD_DATA_LOST, text)


# The first release that stores a promotion: 3.6 refuses a member list with learners that were promoted before
# (etcd#19557, etcd#20793).
LEARNERS_KEPT: Final = (3, 5, 26)


def decide_start(facts: MemberFacts) -> str | Refusal:
    """Return ``initial-cluster`` if etcd may start on this host, "" for a member with data: etcd does not read it then.

    This is the table of OpenShift's discover-etcd-initial-cluster with two more facts: the identity in the write-ahead
    log, and the note of this host.
    """
    data, note = facts.data, facts.note
    if facts.survey is None:
        if not data.present:
            return facts.unreachable
        if data.identity is None or (note is not None and note != data.identity):
            return Refusal(MemberReason.ETCD_DATA_FOREIGN, "the data are not those of the member that this host had")
        return ""
    member = member_here(facts)
    if member is not None and has_data_of(facts, member):
        return "" if has_address(facts, member) else moved(member)
    if member is None and not data.present:
        return Refusal(Reason.ETCD_NOT_MEMBER, f"no member of the cluster has the address {', '.join(facts.peers)}")
    if member is None and data.identity is not None and data.identity.cluster == facts.cluster:
        return Refusal(MemberReason.ETCD_REMOVED, f"member {int(data.identity.member):x} was removed from its cluster")
    # etcd would take it back under its old id, although it has forgotten its votes and what it had acknowledged.
    if member is not None and member.name and not member.learner:
        return data_lost(member)
    if data.present:
        return Refusal(MemberReason.ETCD_DATA_FOREIGN, "the data are those of another member, or of another cluster")
    assert member is not None
    if member.name:
        return data_lost(member)
    return same_name(facts, facts.survey, member.id) or _initial_cluster(facts, facts.survey, member)


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
    members = [parsed for state in survey.states.values() if (parsed := parse_version(state.version))]
    if not ours or not members:
        return None
    oldest, newest = min(members), max(members)
    shown = ".".join(map(str, oldest))
    if ours[0] != oldest[0] or not newest[1] <= ours[1] <= oldest[1] + 1:
        return Refusal(Reason.ETCD_VERSION, f"etcd {version} cannot join a cluster with a member of version {shown}")
    if ours[:2] >= (3, 6) and oldest < LEARNERS_KEPT:
        return Refusal(Reason.ETCD_VERSION, f"a member has version {shown}; before 3.6 all must run 3.5.26 or later")
    return None
