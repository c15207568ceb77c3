# SPDX-License-Identifier: Apache-2.0
"""The holder of a node lease and the right to take it: a table, and a world in which there are never two holders."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.coordination.kube_time import ServerClock, micro_time, parse_time
from nodeagent.core.coordination.lease import Claim, NodeLease, read_lease
from nodeagent.features.cluster.decide.lease import (
    BEHIND,
    LeaseObservation,
    LeaseToken,
    Standing,
    judge,
    new_lease,
    reason_lost,
    renewal,
    take_over,
    why_lost,
)

NOW = 1_800_000_000.0  # by the server
STEADY = 500.0
SERVER = ServerClock(NOW - STEADY - 0.1, NOW - STEADY + 0.1, STEADY)
ME = Claim("nodeagent", "op-1", "update to rendered-2", "host-a")
NMO = NodeLease("u1", "7", "node-maintenance", 3600.0, micro_time(NOW - 60), micro_time(NOW - 60), 2)
OURS = NodeLease("u1", "7", ME.identity, 600.0, micro_time(NOW), micro_time(NOW), notes={"instance": "host-a"})
LONG_AGO = LeaseObservation("u1/7", 0.0)


def test_notes_that_another_holder_left_are_not_this_ones() -> None:
    notes = {"requester": "nodeagent", "operation": "op-1", "reason": "update", "instance": "host-a"}
    assert replace(OURS, notes=notes).holder_notes == notes
    assert replace(NMO, notes=notes).holder_notes == {}
    assert NMO.holder_notes == {}


def old(lease: NodeLease, age: float) -> NodeLease:
    return replace(lease, renewed=micro_time(NOW - age))


@pytest.mark.parametrize(
    ("lease", "seen", "standing"),
    [
        (None, None, Standing.FREE),
        (NMO, LONG_AGO, Standing.HELD),
        (replace(NMO, identity=""), LONG_AGO, Standing.FREE),
        (old(NMO, 3599.0), LONG_AGO, Standing.HELD),
        # Over by the server's clock, but in our own it lives for its whole duration after the last change.
        (old(replace(NMO, duration=60.0), 61.0), LeaseObservation("u1/7", STEADY - 5), Standing.FRESH),
        (old(replace(NMO, duration=60.0), 61.0), None, Standing.FRESH),
        (old(replace(NMO, duration=60.0), 61.0), LeaseObservation("u1/7", STEADY - 61), Standing.EXPIRED),
        (old(replace(NMO, duration=60.0), 60.0), LONG_AGO, Standing.HELD),
        # medik8s reads a renewTime in the future as free; for us it is a holder with a fast clock.
        (old(NMO, -120.0), LONG_AGO, Standing.AHEAD),
        (replace(NMO, duration=None), LONG_AGO, Standing.ENDLESS),
        (replace(NMO, renewed=""), LONG_AGO, Standing.ENDLESS),
        (replace(NMO, renewed="tomorrow"), LONG_AGO, Standing.ENDLESS),
        (replace(NMO, elected=True, identity=""), LONG_AGO, Standing.ELECTED),
        (replace(NMO, deleting=True, identity=""), LONG_AGO, Standing.DELETING),
        (OURS, LONG_AGO, Standing.OURS),
        (old(OURS, 9999.0), LONG_AGO, Standing.OURS),
        (replace(OURS, notes={"instance": "host-b"}), LONG_AGO, Standing.HELD),
        (replace(OURS, notes={}), LONG_AGO, Standing.HELD),
        (replace(OURS, identity="nodeagent/op-2"), LONG_AGO, Standing.HELD),
    ],
)
def test_judge(lease: NodeLease | None, seen: LeaseObservation | None, standing: Standing) -> None:
    assert judge(lease, seen, ME, SERVER, STEADY) is standing


def test_any_change_restarts_the_wait() -> None:
    first = LeaseObservation.again(None, NMO, 10.0)
    assert first == LeaseObservation("u1/7", 10.0)
    assert LeaseObservation.again(first, NMO, 99.0) == first
    assert LeaseObservation.again(first, replace(NMO, version="8"), 99.0) == LeaseObservation("u1/8", 99.0)
    assert LeaseObservation.again(first, replace(NMO, uid="u2"), 99.0) == LeaseObservation("u2/7", 99.0)
    assert LeaseObservation.again(first, None, 99.0) is None


def test_a_new_lease_is_one_that_medik8s_reads() -> None:
    body = new_lease(ME, "node-n1", "n1", "node-uid", 600.0, NOW)
    assert body["spec"] == {
        "holderIdentity": "nodeagent/op-1",
        "leaseDurationSeconds": 660,
        "acquireTime": "2027-01-15T08:00:00.000000Z",
        "renewTime": "2027-01-15T07:59:00.000000Z",
        "leaseTransitions": 0,
    }
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-uid"}
    assert body["metadata"]["ownerReferences"] == [owner]
    lease = read_lease({**body, "metadata": {**body["metadata"], "uid": "u", "resourceVersion": "1"}})
    assert lease.is_of(ME)
    assert lease.notes["reason"] == "update to rendered-2"
    assert lease.expires == NOW + 600


def test_a_takeover_counts_and_fails_if_the_lease_has_changed() -> None:
    patch = take_over(NMO, ME, "n1", "node-uid", 600.0, NOW)
    assert patch["metadata"]["resourceVersion"] == "7"
    assert patch["spec"]["leaseTransitions"] == 3
    assert patch["spec"]["acquireTime"] == micro_time(NOW)
    assert patch["spec"]["renewTime"] == micro_time(NOW - BEHIND)


def test_a_renewal_touches_nothing_but_the_times() -> None:
    assert renewal(OURS, 600.4, NOW) == {
        "metadata": {"resourceVersion": "7"},
        "spec": {"leaseDurationSeconds": 660, "renewTime": micro_time(NOW - BEHIND)},
    }
    assert renewal(OURS, 0.1, NOW)["spec"]["leaseDurationSeconds"] == 61, "it lasts for a second at least"


@pytest.mark.finding(
    "peers: clocks of other holders", "A lease is held by the clock of a peer that is up to a minute slow."
)
@pytest.mark.parametrize("slow", [0.0, 0.2, 2.0, 30.0, BEHIND])
def test_a_peer_whose_clock_is_slow_sees_a_held_lease(slow: float) -> None:
    """For medik8s a lease is valid while ``renewTime <= now <= renewTime + duration`` on the clock of the reader."""
    for spec in (new_lease(ME, "node-n1", "n1", "u", 20.0, NOW)["spec"], renewal(OURS, 20.0, NOW)["spec"]):
        renewed = parse_time(spec["renewTime"])
        assert renewed is not None
        assert renewed <= NOW - slow <= renewed + spec["leaseDurationSeconds"]
        assert renewed + spec["leaseDurationSeconds"] == NOW + 20.0, "when it ends is the same"


@pytest.mark.finding("daemon: no bug ends it", "A field of a Lease that has another type counts as missing.")
@pytest.mark.parametrize(
    "data",
    [
        {},
        {"spec": None},
        {"spec": {"holderIdentity": None, "leaseTransitions": None, "renewTime": None}},
        {"spec": {"leaseDurationSeconds": 10**400}},
    ],
)
def test_missing_and_null_are_the_same(data: dict[str, Any]) -> None:
    about = {"name": "node-n1", "uid": "u1", "resourceVersion": "7", "annotations": None}
    assert read_lease({"metadata": about, **data}) == NodeLease("u1", "7", "")


TOKEN = LeaseToken(ME, "u1", 2)
HELD = replace(OURS, transitions=2)


@pytest.mark.parametrize(
    ("lease", "why"),
    [
        (HELD, ""),
        (replace(HELD, version="99", renewed=""), ""),
        (None, "it was deleted"),
        (replace(HELD, deleting=True), "it was deleted"),
        (NMO, "node-maintenance took it"),
        (replace(HELD, identity=""), "its holder was removed"),
        (replace(HELD, transitions=3), "it was taken or created again"),
        (replace(HELD, uid="u2"), "it was taken or created again"),
        (replace(HELD, notes={"instance": "host-b"}), "nodeagent/op-1 took it"),
    ],
)
def test_why_lost(lease: NodeLease | None, why: str) -> None:
    assert why_lost(TOKEN, lease) == why
    assert why_lost(replace(TOKEN, lost="it was deleted"), lease) == "it was deleted", "what is lost stays lost"


@pytest.mark.finding(
    "peers: leases of medik8s",
    "A holder that gives back a lease which it no longer has does not cancel an update that has written nothing.",
)
@pytest.mark.parametrize(
    ("transitions", "lease", "reason"),
    [
        (0, None, "LeaseLost"),  # made by us, so deleting it was meant for us
        (1, None, "LeaseGivenBack"),
        (1, replace(OURS, identity="x"), "LeaseLost"),
        (1, replace(OURS, deleting=True), "LeaseGivenBack"),
    ],
)
def test_a_lease_that_was_taken_over_may_be_deleted_by_its_former_holder(
    transitions: int, lease: NodeLease | None, reason: str
) -> None:
    token = LeaseToken(ME, "u1", transitions)
    why = why_lost(token, lease)
    assert reason_lost(token, why) == reason
    lost = replace(token, lost=why)
    assert reason_lost(lost, why_lost(lost, None)) == reason, "also when it is asked again"


# --- never two holders

DURATION = 100.0
SLACK = 10.0


@dataclass
class Agent:
    """The protocol of a lease of a cluster, without a network. ``ahead``: start of its steady clock."""

    name: str
    ahead: float
    seen: LeaseObservation | None = None
    valid_until: float = 0.0

    @property
    def claim(self) -> Claim:
        return Claim("nodeagent", "op", "", self.name)

    def holds(self, now: float) -> bool:
        return self.valid_until > now + self.ahead


@dataclass
class World:
    """``skew`` is what the clock of a foreign holder is ahead of the server's."""

    agents: list[Agent]
    skew: float
    now: float = NOW
    lease: NodeLease | None = None
    foreign_until: float = 0.0
    made: int = 0
    log: list[str] = field(default_factory=list)

    def apply(self, what: str, number: float) -> None:
        match what:
            case "wait":
                self.now += number
            case "foreign" if self.lease is None or self._expired_for_foreign():
                self._write("node-maintenance", "", number, self.now + self.skew)
                self.foreign_until = self.now + number
            case "foreign" if self.lease is not None and self.lease.identity == "node-maintenance":
                self._write("node-maintenance", "", number, self.now + self.skew)
                self.foreign_until = self.now + number
            case "one" | "two":
                self._acquire(self.agents[what == "two"])
            case _:
                pass

    def _expired_for_foreign(self) -> bool:
        """A well-behaved one with a right clock: what nodeagent wrote counts for it in full."""
        assert self.lease is not None
        return self.lease.expires is not None and self.lease.expires < self.now

    def _acquire(self, agent: Agent) -> None:
        steady = self.now + agent.ahead
        server = ServerClock(-agent.ahead - 0.5, -agent.ahead + 0.5, steady)
        agent.seen = LeaseObservation.again(agent.seen, self.lease, steady)
        if judge(self.lease, agent.seen, agent.claim, server, steady) in (
            Standing.FREE,
            Standing.EXPIRED,
            Standing.OURS,
        ):
            self._write(agent.claim.identity, agent.name, DURATION, server.earliest(steady))
            agent.valid_until = steady + DURATION - SLACK

    def _write(self, identity: str, instance: str, duration: float, renewed: float) -> None:
        self.made += 1
        notes = {"instance": instance} if instance else {}
        self.lease = NodeLease("u", str(self.made), identity, duration, "", micro_time(renewed), notes=notes)


STEPS = st.lists(
    st.tuples(st.sampled_from(["wait", "one", "two", "foreign"]), st.floats(1.0, 200.0)), min_size=5, max_size=80
)


@given(
    steps=STEPS,
    ahead=st.tuples(st.floats(-NOW, 1e6), st.floats(-NOW, 1e6)),
    skew=st.floats(-300.0, 300.0),
)
def test_there_are_never_two_holders(steps: list[tuple[str, float]], ahead: tuple[float, float], skew: float) -> None:
    world = World([Agent("a", ahead[0]), Agent("b", ahead[1])], skew)
    for step in steps:
        world.apply(*step)
        holders = [agent.name for agent in world.agents if agent.holds(world.now)]
        if world.foreign_until > world.now + SLACK:
            holders.append("node-maintenance")
        assert len(holders) <= 1, f"{holders} after {step}"
