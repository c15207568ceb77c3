"""What is known about the member of etcd on this host: the members of its cluster, its data, and the note of it.

``DataDirectory`` must be read after the list of members: only then is a listed name without data a lost disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nodeagent.core.etcd.quorum import EtcdSurvey, Member, Refusal
from nodeagent.reasons import Reason

UNREACHABLE: Final = Refusal(Reason.ETCD_UNREACHABLE, "no member answers")


@dataclass(frozen=True, slots=True)
class Identity:
    """The ids of a member and of its cluster, as decimal strings."""

    member: str
    cluster: str


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """``present``: it has a directory ``member``. ``identity`` is that of its write-ahead log, None if it has none."""

    present: bool = False
    identity: Identity | None = None


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """What is known about the member of this host, running or not.

    ``survey`` is None if no member of the cluster answers; ``unreachable`` has the reason. ``note`` is the identity
    that this host had last, from the store. ``permitted``: etcd runs with the config that nodeagent wrote, so it cannot
    be that of another cluster. ``problem`` prevents the addition of this member: its certificates, or its version.
    """

    name: str
    peers: Sequence[str]
    survey: EtcdSurvey | None = None
    unreachable: Refusal = UNREACHABLE
    data: DataDirectory = DataDirectory()
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
    found = facts.data.identity
    # An id says nothing in another cluster.
    return found is not None and found.member == member.id and facts.cluster in ("", found.cluster)


def has_address(facts: MemberFacts, member: Member) -> bool:
    # A member may have several addresses, of which one is enough.
    return not set(facts.peers).isdisjoint(member.peers)


def moved(member: Member) -> Refusal:
    text = f"the cluster knows {member.title} by {', '.join(member.peers)}, and its config has another address"
    return Refusal(Reason.ETCD_ADDRESS_DIFFERS, text)


def same_name(facts: MemberFacts, survey: EtcdSurvey, here: str = "") -> Refusal | None:
    """Return why no member of this name may be added. ``here`` is the id of the member of this host."""
    # etcd takes the addresses of both for those of one member, and does not start (etcd#5244).
    others = [member for member in survey.members if member.name == facts.name and member.id != here]
    return Refusal(Reason.ETCD_CONFIG_INVALID, f"{others[0].title} has the same name as this host") if others else None


def data_lost(member: Member) -> Refusal:
    text = f"{member.title} (member {int(member.id):x}) has run before, and its data are not in the data directory"
    return Refusal(Reason.ETCD_DATA_LOST, text)


def by_id(survey: EtcdSurvey, member: str) -> Member | None:
    return next((each for each in survey.members if each.id == member), None) if member else None
