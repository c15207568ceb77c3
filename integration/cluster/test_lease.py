# SPDX-License-Identifier: Apache-2.0
"""The node lease on a real API server: the failures that leases have, each as it comes about."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest

from integration.cluster.cluster import LEASE_PATH, Cluster
from integration.cluster.medik8s import AlreadyHeld, Conflict, Manager
from integration.cluster.other_holders import (
    NMO,
    Agent,
    client_at,
    client_of,
    foreign,
    goodbye,
    lease_of,
    taken_too_early,
)
from nodeagent.core.coordination.kube_time import parse_time
from nodeagent.core.coordination.lease import HostIdentity
from nodeagent.errors import Refused, Terminal, Unreachable
from nodeagent.features.cluster.decide.lease import BEHIND
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import Forbidden

MakeAgent = Callable[..., Agent]
OP = "3f2b"
WHY = "update to rendered-2"


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[KubeClient]:
    async with client_of(cluster, timeout=2.0) as made:
        yield made
    await goodbye(cluster)


@pytest.fixture
def make_agent(client: KubeClient, node: str) -> MakeAgent:
    def make(instance: str = "host-a", *, duration: float = 600.0, slack: float = 60.0) -> Agent:
        return Agent(client, HostIdentity(node, instance), options={"duration": duration, "slack": slack})

    return make


@pytest.fixture
def agent(make_agent: MakeAgent) -> Agent:
    return make_agent()


async def refused(what: object, reason: str) -> str:
    with pytest.raises(Refused) as caught:
        await what  # type: ignore[misc]
    assert caught.value.reason == reason
    return caught.value.message


async def test_taken_renewed_and_given_back(cluster: Cluster, node: str, agent: Agent) -> None:
    await agent.lease.acquire("nodeagent", OP, WHY)
    taken = lease_of(cluster, node)
    assert taken is not None
    assert taken["spec"]["holderIdentity"] == f"nodeagent/{OP}"
    assert taken["spec"]["leaseTransitions"] == 0
    (owner,) = taken["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == (
        "Node",
        node,
        cluster.admin.get(f"/api/v1/nodes/{node}")["metadata"]["uid"],
    )
    holder = await agent.lease.holder()
    assert holder is not None
    assert (holder.name, holder.operation, holder.reason) == ("nodeagent", OP, WHY)
    assert (parse_time(holder.expires) or 0) - (parse_time(holder.since) or 0) == 600

    await agent.lease.acquire("nodeagent", OP, WHY)
    renewed = lease_of(cluster, node)
    assert renewed is not None
    assert renewed["spec"]["acquireTime"] == taken["spec"]["acquireTime"]
    assert renewed["spec"]["renewTime"] > taken["spec"]["renewTime"]
    await agent.lease.check(OP)
    message = await refused(agent.lease.acquire("root", "maintenance", "new disks"), "LeaseHeld")
    assert WHY in message
    await agent.lease.release("another")
    assert lease_of(cluster, node) is not None
    await agent.lease.release(OP)
    assert lease_of(cluster, node) is None
    await agent.lease.release(OP)
    await refused(agent.lease.check(OP), "LeaseLost")
    assert taken_too_early(cluster, node) == []


@pytest.mark.parametrize("holder", [NMO, "NodeHealthCheck-nhc-worker"])
@pytest.mark.cluster_failure("another operator has the node for a maintenance")
@pytest.mark.cluster_failure("a health check is about to fence the node")
async def test_a_holder_of_medik8s_is_waited_for(cluster: Cluster, node: str, agent: Agent, holder: str) -> None:
    before = foreign(cluster, node, holder=holder)
    message = await refused(agent.lease.acquire("nodeagent", OP, WHY), "LeaseHeld")
    assert holder in message
    assert before["spec"]["acquireTime"] in message
    seen = await agent.lease.holder()
    assert seen is not None
    assert seen.name == holder
    assert lease_of(cluster, node) == before, "nothing was written"
    cluster.admin.delete(f"{LEASE_PATH}/node-{node}")
    await agent.lease.acquire("nodeagent", OP, WHY)


@pytest.mark.cluster_failure("the lease has expired by the clock, and was written a moment ago")
async def test_an_expired_lease_is_taken_after_a_whole_duration_without_a_change(
    cluster: Cluster, node: str, agent: Agent
) -> None:
    foreign(cluster, node, duration=2, ahead=-3600)
    began = time.monotonic()
    message = await refused(agent.lease.acquire("nodeagent", OP, WHY), "LeaseHeld")
    assert "changed not long ago" in message
    assert await agent.lease.holder() is not None
    while time.monotonic() < began + 30:
        with suppress(Refused):
            await agent.lease.acquire("nodeagent", OP, WHY)
            break
        await asyncio.sleep(0.2)
    assert time.monotonic() - began >= 2
    taken = lease_of(cluster, node)
    assert taken is not None
    assert taken["spec"]["leaseTransitions"] == 1
    assert taken["metadata"]["ownerReferences"][0]["name"] == node


@pytest.mark.finding(
    "peers: leases of medik8s",
    "A holder that gives back a lease which it no longer has does not cancel an update that has written nothing.",
)
async def test_a_former_holder_that_gives_back_our_lease(cluster: Cluster, node: str, agent: Agent) -> None:
    """medik8s' library deletes without a precondition: what it read as its own may be ours by then."""
    foreign(cluster, node, duration=1, ahead=-3600)
    async with asyncio.timeout(30):
        while True:
            with suppress(Refused):
                await agent.lease.acquire("nodeagent", OP, WHY)
                break
            await asyncio.sleep(0.2)
    cluster.admin.delete(f"{LEASE_PATH}/node-{node}")
    for _ in range(2):
        await refused(agent.lease.check(OP), "LeaseGivenBack")
    await refused(agent.restarted().lease.acquire("nodeagent", OP, WHY), "LeaseGivenBack")
    await agent.lease.acquire("nodeagent", "the-next-try", WHY)
    cluster.admin.delete(f"{LEASE_PATH}/node-{node}")
    await refused(agent.lease.check("the-next-try"), "LeaseLost")


@pytest.mark.cluster_failure(
    "the lease has expired by the clock, and was written a moment ago",
    "treats it as held, until it has also been unchanged for its whole duration by the host's own clock",
)
async def test_a_holder_whose_clock_is_an_hour_slow_is_a_holder(cluster: Cluster, node: str, agent: Agent) -> None:
    for _ in range(8):
        foreign(cluster, node, duration=2, ahead=-3600)
        await refused(agent.lease.acquire("nodeagent", OP, WHY), "LeaseHeld")
        await asyncio.sleep(0.5)


@pytest.mark.cluster_failure("the time of the lease is in the future", "treats it as held, and reports that")
async def test_a_holder_whose_clock_is_fast_is_a_holder(cluster: Cluster, node: str, agent: Agent) -> None:
    foreign(cluster, node, duration=1, ahead=300)
    for _ in range(4):
        message = await refused(agent.lease.acquire("nodeagent", OP, WHY), "LeaseHeld")
        assert "ahead of the API server" in message
        await asyncio.sleep(0.5)


@pytest.mark.finding(
    "peers: clocks of other holders", "A lease is held by the clock of a peer that is up to a minute slow."
)
@pytest.mark.finding(
    "peers: leases of medik8s",
    "The real lease library of medik8s never gets a node that the agent has, by any clock, and only one wins a race.",
)
@pytest.mark.parametrize("slow", [0.2, 2.0, 30.0])
async def test_a_peer_whose_clock_is_slow_does_not_get_the_lease(
    cluster: Cluster, node: str, agent: Agent, slow: float
) -> None:
    await agent.lease.acquire("nodeagent", OP, WHY)
    peer = Manager(cluster, NMO, later=-slow)
    for need in (0.0, 3000.0):  # as it was taken, and as it was renewed
        await agent.lease.check(OP, need=need)
        with pytest.raises(AlreadyHeld):
            await peer.request(node, 60)
    await agent.lease.check(OP)


async def test_a_lease_without_an_end_is_held_until_an_operator_removes_it(
    cluster: Cluster, node: str, agent: Agent
) -> None:
    foreign(cluster, node, duration=None, holder="kubeadm:jane", ahead=-86400)
    assert "without an end" in await refused(agent.lease.acquire("nodeagent", OP, WHY), "LeaseHeld")


@pytest.mark.cluster_failure("two agents take the lease at the same moment", "one gets it, the other waits")
async def test_two_agents_race_and_one_wins(cluster: Cluster, node: str, make_agent: MakeAgent) -> None:
    agents = [make_agent("host-a"), make_agent("host-b")]
    for number in range(10):
        results = await asyncio.gather(
            *(agent.lease.acquire("nodeagent", f"op-{number}", WHY) for agent in agents), return_exceptions=True
        )
        winners = [agent for agent, result in zip(agents, results, strict=True) if result is None]
        (loser,) = [result for result in results if result is not None]
        assert isinstance(loser, Refused)
        assert loser.reason == "LeaseHeld"
        (winner,) = winners
        await winner.lease.check(f"op-{number}")
        for agent in agents:  # the one that lost does not give back what it has not
            if agent is not winner:
                await agent.lease.release(f"op-{number}")
        await winner.lease.check(f"op-{number}")
        await winner.lease.release(f"op-{number}")
    assert taken_too_early(cluster, node) == []


@pytest.mark.finding(
    "peers: leases of medik8s",
    "The real lease library of medik8s never gets a node that the agent has, by any clock, and only one wins a race.",
)
async def test_a_race_with_the_library_of_medik8s_has_one_winner(cluster: Cluster, node: str, agent: Agent) -> None:
    peer = Manager(cluster, NMO)

    async def ours(number: int) -> None:
        # The other one is a process, which takes some tenths of a second to start.
        await asyncio.sleep(number / 10)
        await agent.lease.acquire("nodeagent", f"op-{number}", WHY)

    for number in range(8):
        our, their = await asyncio.gather(ours(number), peer.request(node, 60), return_exceptions=True)
        if our is None:
            assert isinstance(their, AlreadyHeld | Conflict), their
            await agent.lease.check(f"op-{number}")
            await agent.lease.release(f"op-{number}")
        else:
            assert isinstance(our, Refused), our
            assert not isinstance(their, Exception), their
            await peer.invalidate(node)
    assert taken_too_early(cluster, node) == []


@pytest.mark.cluster_failure("two agents take the lease at the same moment")
async def test_many_race_for_an_expired_lease(cluster: Cluster, node: str, make_agent: MakeAgent) -> None:
    foreign(cluster, node, duration=1, ahead=-60)
    agents = [make_agent(f"host-{number}") for number in range(8)]
    tries = (agent.lease.acquire("nodeagent", OP, WHY) for agent in agents)
    assert all(isinstance(r, Refused) for r in await asyncio.gather(*tries, return_exceptions=True))
    await asyncio.sleep(1.5)
    tries = (agent.lease.acquire("nodeagent", OP, WHY) for agent in agents)
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert results.count(None) == 1, results
    assert taken_too_early(cluster, node) == []


@pytest.mark.cluster_failure("the lease is stolen during the drain")
async def test_a_stolen_lease_is_lost_for_good(cluster: Cluster, node: str, agent: Agent) -> None:
    await agent.lease.acquire("nodeagent", OP, WHY)
    thief = foreign(cluster, node)
    assert not agent.lost
    assert NMO in await refused(agent.lease.check(OP), "LeaseLost")
    assert agent.lost
    await refused(agent.lease.before_reboot(OP, 900), "LeaseLost")
    await agent.lease.release(OP)
    assert lease_of(cluster, node) == thief, "what belongs to another one is not deleted"
    holder = await agent.restarted().lease.holder()
    assert holder is not None
    assert (holder.name, holder.operation, holder.reason) == (NMO, "", ""), "our annotations are still on it"
    message = await refused(agent.restarted().lease.acquire("nodeagent", "another", WHY), "LeaseHeld")
    assert WHY not in message
    await Agent(agent.client, agent.host).lease.release(OP)
    assert lease_of(cluster, node) == thief, "nor by one that remembers nothing"
    (early,) = taken_too_early(cluster, node)
    assert early.startswith(f"{NMO} took node-{node} from nodeagent/{OP}")

    cluster.admin.delete(f"{LEASE_PATH}/node-{node}")
    await refused(agent.restarted().lease.acquire("nodeagent", OP, WHY), "LeaseLost")
    await agent.lease.acquire("nodeagent", "a-new-request", WHY)
    assert not agent.lost


@pytest.mark.cluster_failure("an admin deletes the lease")
async def test_deleting_the_lease_cancels_the_operation(cluster: Cluster, node: str, agent: Agent) -> None:
    await agent.lease.acquire("nodeagent", OP, WHY)
    cluster.admin.delete(f"{LEASE_PATH}/node-{node}")
    assert "deleted" in await refused(agent.lease.check(OP), "LeaseLost")
    await refused(agent.lease.acquire("nodeagent", OP, WHY), "LeaseLost")
    assert lease_of(cluster, node) is None
    await agent.lease.acquire("nodeagent", "a-new-request", WHY)


async def test_a_lease_that_was_made_again_under_our_name_is_not_ours(
    cluster: Cluster, node: str, agent: Agent
) -> None:
    await agent.lease.acquire("nodeagent", OP, WHY)
    copy = cluster.admin.get(f"{LEASE_PATH}/node-{node}")
    cluster.admin.delete(f"{LEASE_PATH}/node-{node}")
    for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
        copy["metadata"].pop(key)
    cluster.admin.create(LEASE_PATH, copy)
    assert "created again" in await refused(agent.lease.check(OP), "LeaseLost")


async def test_a_foreign_annotation_does_not_disturb(cluster: Cluster, node: str, agent: Agent) -> None:
    await agent.lease.acquire("nodeagent", OP, WHY)
    note = {"metadata": {"annotations": {"example.com/seen-by": "jane"}}}
    cluster.admin.patch(f"{LEASE_PATH}/node-{node}", note)
    await agent.lease.check(OP, need=3000)
    kept = lease_of(cluster, node)
    assert kept is not None
    assert kept["metadata"]["annotations"]["example.com/seen-by"] == "jane"
    assert kept["spec"]["leaseDurationSeconds"] == 3060 + BEHIND, "renewed for as long as the step needs"


async def test_a_hung_api_server_is_waited_for_while_the_lease_lasts(
    cluster: Cluster, node: str, make_agent: MakeAgent
) -> None:
    agent = make_agent(duration=30, slack=18)  # ours for 12 s
    await agent.lease.acquire("nodeagent", OP, WHY)
    began = time.monotonic()
    cluster.apiserver.pause()
    with pytest.raises(Unreachable):
        await agent.lease.check(OP)
    assert time.monotonic() - began < 11, "three reads of two seconds, and the pauses between them"
    cluster.apiserver.resume()
    await agent.lease.check(OP, need=11)
    assert not agent.lost


@pytest.mark.cluster_failure("the API server is down, nothing was written")
async def test_when_the_lease_runs_out_unseen_it_is_no_longer_ours(
    cluster: Cluster, node: str, make_agent: MakeAgent
) -> None:
    agent = make_agent(duration=30, slack=27)  # ours for 3 s
    await agent.lease.acquire("nodeagent", OP, WHY)
    cluster.apiserver.pause()
    await refused(agent.lease.check(OP, offline=True), "LeaseExpired")
    cluster.apiserver.resume()
    await agent.lease.acquire("nodeagent", OP, WHY)
    await agent.lease.check(OP)
    kept = lease_of(cluster, node)
    assert kept is not None
    assert kept["spec"]["leaseTransitions"] == 0, "no other holder had it in between"


@pytest.mark.cluster_failure("the API server is down before the reboot")
async def test_a_step_that_cannot_wait_goes_by_the_time_that_is_left(cluster: Cluster, agent: Agent) -> None:
    await agent.lease.acquire("nodeagent", OP, WHY)
    cluster.apiserver.pause()
    await agent.lease.check(OP, need=300, offline=True)
    with pytest.raises(Unreachable):
        await agent.lease.check(OP, need=3000, offline=True)


@pytest.mark.cluster_failure("a write gets no answer", "reads whether the write was done")
async def test_a_server_that_hangs_while_we_take_the_lease(cluster: Cluster, node: str, agent: Agent) -> None:
    await refused(agent.lease.check(OP), "LeaseLost")
    await agent.lease.holder()  # connected, so that the request itself is what hangs
    cluster.etcd.pause()
    with pytest.raises((Unreachable, Refused, Terminal)) as caught:
        await asyncio.wait_for(agent.lease.acquire("nodeagent", OP, WHY), 180)
    assert isinstance(caught.value, Unreachable)
    cluster.etcd.resume()
    cluster.apiserver.wait_ready(60)
    await agent.lease.acquire("nodeagent", OP, WHY)
    await agent.lease.check(OP)
    assert taken_too_early(cluster, node) == []


async def test_a_restarted_api_server_is_found_again(cluster: Cluster, agent: Agent) -> None:
    await agent.lease.acquire("nodeagent", OP, WHY)
    cluster.restart_apiserver()
    await agent.lease.check(OP)


@pytest.mark.cluster_failure("the agent is stopped by its own update")
async def test_a_restart_of_the_agent_keeps_the_lease(cluster: Cluster, node: str, agent: Agent) -> None:
    await agent.lease.acquire("nodeagent", OP, WHY)
    again = agent.restarted()
    await again.lease.check(OP, need=500)
    await again.lease.release(OP)
    assert lease_of(cluster, node) is None


async def test_a_kill_before_the_token_was_stored_loses_nothing(cluster: Cluster, node: str, agent: Agent) -> None:
    await agent.lease.acquire("nodeagent", OP, WHY)
    agent.memory.data = None
    again = agent.restarted()
    await again.lease.acquire("nodeagent", OP, WHY)
    await again.lease.check(OP)
    kept = lease_of(cluster, node)
    assert kept is not None
    assert kept["spec"]["leaseTransitions"] == 0


@pytest.mark.cluster_failure("the host reboots as planned")
async def test_the_lease_lasts_through_a_reboot_and_is_found_again(cluster: Cluster, node: str, agent: Agent) -> None:
    await agent.lease.acquire("nodeagent", OP, WHY)
    before = lease_of(cluster, node)
    await agent.lease.before_reboot(OP, 1800)
    during = lease_of(cluster, node)
    assert before is not None
    assert during is not None
    assert during["spec"]["leaseDurationSeconds"] == 1860 + BEHIND

    booted = agent.restarted()
    await booted.lease.acquire("nodeagent", OP, WHY)
    await booted.lease.check(OP)
    after = lease_of(cluster, node)
    assert after is not None
    for where, key in (("metadata", "uid"), ("spec", "leaseTransitions"), ("spec", "acquireTime")):
        assert after[where][key] == before[where][key]
    assert after["spec"]["leaseDurationSeconds"] == 600 + BEHIND
    await booted.lease.release(OP)


async def test_a_boot_that_took_too_long_finds_another_holder(cluster: Cluster, node: str, agent: Agent) -> None:
    await agent.lease.acquire("nodeagent", OP, WHY)
    await agent.lease.before_reboot(OP, 60)
    foreign(cluster, node, holder="NodeHealthCheck-nhc-worker")
    booted = agent.restarted()
    assert "NodeHealthCheck" in await refused(booted.lease.acquire("nodeagent", OP, WHY), "LeaseLost")


@pytest.mark.cluster_failure("the Node is deleted and created again in the meantime")
async def test_a_node_that_was_made_again_has_a_lease_of_its_own(cluster: Cluster, node: str, agent: Agent) -> None:
    await agent.lease.acquire("nodeagent", OP, WHY)
    cluster.admin.delete(f"/api/v1/nodes/{node}")
    cluster.admin.delete(f"{LEASE_PATH}/node-{node}")  # what the garbage collector does then
    await refused(agent.restarted().lease.acquire("nodeagent", OP, WHY), "LeaseLost")
    assert node in await refused(agent.lease.acquire("nodeagent", "next", WHY), "NodeUnknown")
    cluster.node(node)
    await agent.lease.acquire("nodeagent", "next", WHY)
    taken, made = lease_of(cluster, node), cluster.admin.get(f"/api/v1/nodes/{node}")
    assert taken is not None
    assert taken["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]


async def test_what_is_held_is_renewed_in_the_background(cluster: Cluster, node: str, make_agent: MakeAgent) -> None:
    agent = make_agent(duration=4, slack=1)
    keeping = asyncio.create_task(agent.lease.keep())
    await agent.lease.acquire("nodeagent", OP, WHY)
    await asyncio.sleep(6)
    asked = agent.client.requests
    await agent.lease.check(OP, need=0.5)
    assert agent.client.requests == asked + 1, "there is time enough: it was read, not renewed"
    foreign(cluster, node)
    async with asyncio.timeout(5):
        while not agent.lost:
            await asyncio.sleep(0.05)
    asked = agent.client.requests
    await asyncio.sleep(2)
    assert agent.client.requests == asked, "what is lost is not asked for again"
    keeping.cancel()
    with suppress(asyncio.CancelledError):
        await keeping


@pytest.mark.cluster_failure("credentials are rotated, revoked or expire")
async def test_rotated_certificates_are_used_without_a_restart(cluster: Cluster, node: str) -> None:
    kubeconfig = cluster.kubeconfig("rotated")
    async with client_at(cluster, kubeconfig) as client:
        with pytest.raises(Forbidden) as caught:
            await client.get(f"{LEASE_PATH}/node-{node}")
        assert 'cannot get resource "leases"' in caught.value.message
        cluster.authority.client("rotated", "rotated", ["system:masters"])
        await client.close()  # as after ten seconds, or the first connection that fails
        agent = Agent(client, HostIdentity(node, "host-a"))
        await agent.lease.acquire("nodeagent", OP, WHY)


async def test_a_service_account_whose_token_expires(cluster: Cluster, node: str) -> None:
    token = cluster.directory / "token"
    token.write_text("eyJhbGciOiJub25lIn0.e30.")
    kubeconfig = cluster.kubeconfig("by-token", token_file=token)
    async with client_at(cluster, kubeconfig) as client:
        with pytest.raises(Unreachable) as caught:
            await client.get(f"{LEASE_PATH}/node-{node}")
        assert caught.value.reason == "KubeUnauthorized"
        token.write_text(cluster.token("medik8s-leases", "nodeagent"))
        with pytest.raises(Forbidden) as denied:
            await client.get(f"{LEASE_PATH}/node-{node}")
        assert "system:serviceaccount:medik8s-leases:nodeagent" in denied.value.message


async def test_a_namespace_that_is_missing_is_named(client: KubeClient, node: str) -> None:
    agent = Agent(client, HostIdentity(node, "host-a"), options={"namespace": "nowhere"})
    with pytest.raises(Terminal, match="nowhere") as caught:
        await agent.lease.acquire("nodeagent", OP, WHY)
    assert caught.value.reason == "LeaseNamespaceMissing"
