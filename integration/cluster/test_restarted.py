# SPDX-License-Identifier: Apache-2.0
"""An API server that is killed and started again with many agents connected: it serves before it has read its roles."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import pytest

from integration.cluster.cluster import SLOT_PATH, Cluster
from integration.cluster.controller import Controller, Memory
from integration.cluster.other_holders import client_at, lease_of, seconds
from integration.cluster.sim_node import SimNode
from integration.cluster.test_rights import documents, path_of
from nodeagent.errors import AgentError
from nodeagent.features.cluster import handshake
from nodeagent.features.cluster.handshake import Handshake
from nodeagent.update import wait
from nodeagent.update.ports.events import ConfigRefused, HostDegraded, PhaseEntered, UpdateWaiting
from nodeagent.update.states import Phase
from tests.world.run import config

# Seconds between two reads of a Node, and the least and most part of it after which an agent returns from an outage.
EVERY: Final = 6.0
RETURN: Final = 0.2, 1.2
# Half an hour in half a minute. Only the three attempts of a read keep their pauses, which are two seconds together.
SHORTER: Final = 1 / 60
AWAY: Final = 1800 * SHORTER
OUTAGES: Final = {"KubeUnreachable", "KubeServerFault", "KubeThrottled"}
_numbers = itertools.count(1)


class Follower:
    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.shake: Handshake | None = None

    def fault(self, error: AgentError | None) -> None:
        if error is not None:
            self.reasons.append(str(error.reason))

    async def desired(self) -> str:
        assert self.shake is not None
        try:
            source = await self.shake.desired()
        except AgentError as error:
            self.reasons.append(str(error.reason))
            return ""
        return source.name if source is not None else ""


def install_rights(cluster: Cluster) -> None:
    for document in documents():
        if cluster.admin.find(f"{path_of(document)}/{document['metadata']['name']}") is None:
            cluster.admin.create(path_of(document), document)


@asynccontextmanager
async def following(cluster: Cluster, agents: int, every: float) -> AsyncIterator[dict[str, Follower]]:
    """Agents by the names of their Nodes, each with a certificate of its own and the rights that are shipped."""
    await asyncio.to_thread(install_rights, cluster)
    made: dict[str, Follower] = {}
    fleet = f"restarted-{next(_numbers)}"
    async with AsyncExitStack() as stack:
        tasks = []
        for number in range(agents):
            name = f"{fleet}-{number}"
            await asyncio.to_thread(cluster.node, name)
            kubeconfig = await asyncio.to_thread(cluster.kubeconfig, f"nodeagent:{name}", ["nodeagent"])
            client = await stack.enter_async_context(client_at(cluster, kubeconfig, timeout=10.0))
            follower = made[name] = Follower()
            follower.shake = Handshake(
                client, name, Memory(), changed=lambda _: None, on_error=follower.fault, every=every
            )
            tasks.append(asyncio.create_task(follower.shake.run()))
        yield made
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def desire(cluster: Cluster, followers: Iterable[str], config: str) -> None:
    def all_at_once() -> None:
        for name in followers:
            Controller(cluster, name).desire(config)

    await asyncio.to_thread(all_at_once)


async def all_have(followers: dict[str, Follower], config: str) -> None:
    async with asyncio.timeout(180):
        for follower in followers.values():
            while await follower.desired() != config:
                await asyncio.sleep(0.1)


async def noticed(followers: dict[str, Follower], config: str) -> None:
    async with asyncio.timeout(120):
        while not all("KubeUnreachable" in follower.reasons for follower in followers.values()):
            await asyncio.sleep(0.1)
            for follower in followers.values():
                assert await follower.desired() == config, "the last desired config stays"


async def start(cluster: Cluster) -> None:
    # In this thread, because a server ends with the thread that started it.
    cluster.apiserver.start()
    await asyncio.to_thread(cluster.apiserver.wait_ready, 240)


def returns(cluster: Cluster, nodes: Iterable[str], since: float) -> dict[str, tuple[float, float]]:
    """Return when each agent has read its Node first, and when it began its first watch after that, by the API server's
    account. ``since`` is in seconds since the epoch."""
    read: dict[str, float] = {}
    watched: dict[str, float] = {}
    users = {f"nodeagent:{node}": node for node in nodes}
    for event in cluster.audit():
        node, at = users.get(event["user"]["username"]), seconds(event["requestReceivedTimestamp"])
        if node is None or at < since or event["responseStatus"]["code"] != 200:
            continue
        if event["verb"] == "get" and (event.get("objectRef") or {}).get("resource") == "nodes":
            read.setdefault(node, at)
        elif event["verb"] == "watch" and node in read:
            watched.setdefault(node, at)
    return {node: (read[node], at) for node, at in watched.items()}


async def all_returned(
    cluster: Cluster, nodes: Collection[str], since: float, every: float
) -> dict[str, tuple[float, float]]:
    async with asyncio.timeout(180):
        while True:
            # The log of a whole run is long.
            await asyncio.sleep(max(2.0, every))
            found = await asyncio.to_thread(returns, cluster, nodes, since)
            if len(found) == len(nodes):
                return found


def troubles(member: SimNode) -> list[str]:
    """What a user would see of a refusal or a failure."""
    bad = (HostDegraded, ConfigRefused)
    return [
        repr(event)
        for event in member.world.events
        if isinstance(event, bad) or (isinstance(event, PhaseEntered) and event.about.phase is Phase.DEGRADED)
    ]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.finding(
    "cluster: an API server that starts",
    "Agents that are connected to an API server while it starts again report an outage, and no refusal.",
)
@pytest.mark.finding(
    "cluster: agents after an outage", "They read their Nodes again spread over an interval, however they found it."
)
# Of 300 agents at the short interval, this process and the server are busy for longer than the interval.
@pytest.mark.parametrize(("agents", "every"), [(40, EVERY), pytest.param(300, handshake.EVERY, marks=pytest.mark.long)])
async def test_no_agent_takes_the_start_of_an_api_server_for_a_refusal(
    cluster: Cluster, agents: int, every: float
) -> None:
    async with following(cluster, agents, every) as followers:
        first, second = f"rendered-before-{agents}", f"rendered-after-{agents}"
        for name in (first, second):
            Controller(cluster, next(iter(followers))).make(name, x="1")
        await desire(cluster, followers, first)
        await all_have(followers, first)
        cluster.apiserver.kill()
        await noticed(followers, first)
        since = time.time()  # noqa: TID251 - the API server's clock is the machine's
        await start(cluster)
        # They fetch it with their first requests to the server that starts.
        await desire(cluster, followers, second)
        await all_have(followers, second)
        found = await all_returned(cluster, followers, since, every)
    assert {reason for follower in followers.values() for reason in follower.reasons} <= OUTAGES
    pauses = [watched - read for read, watched in found.values()]
    least, most = RETURN
    assert [pause for pause in pauses if not least * every <= pause <= 2 * every] == []
    tenths = Counter(int(watched / (every / 10)) for _, watched in found.values())
    assert max(tenths.values()) <= agents / 3
    assert max(pauses) - min(pauses) >= (most - least) / 2 * every


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.finding(
    "cluster: agents after an outage", "A server that is away for half an hour is asked seldom, and found again."
)
async def test_a_server_that_is_away_for_half_an_hour(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    longest = handshake.READ_LONGEST_PAUSE * SHORTER
    monkeypatch.setattr(handshake, "READ_FIRST_PAUSE", handshake.READ_FIRST_PAUSE * SHORTER)
    monkeypatch.setattr(handshake, "READ_LONGEST_PAUSE", longest)
    async with following(cluster, 20, handshake.EVERY * SHORTER) as followers:
        first, second = "rendered-before-long", "rendered-after-long"
        for name in (first, second):
            Controller(cluster, next(iter(followers))).make(name, x="1")
        await desire(cluster, followers, first)
        await all_have(followers, first)
        cluster.apiserver.kill()
        await noticed(followers, first)
        clients = [follower.shake._client for follower in followers.values() if follower.shake is not None]
        before = [client.requests for client in clients]
        await asyncio.sleep(AWAY)
        asked = [client.requests - count for client, count in zip(clients, before, strict=True)]
        assert all(count <= 3 * (AWAY / longest + 7) for count in asked)
        assert all(count >= 3 for count in asked)
        since = time.time()  # noqa: TID251 - the API server's clock is the machine's
        await start(cluster)
        await desire(cluster, followers, second)
        await all_have(followers, second)
        await all_returned(cluster, followers, since, handshake.EVERY * SHORTER)
    assert {reason for follower in followers.values() for reason in follower.reasons} <= OUTAGES


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.cluster_failure(
    "the API server is started again", "waits, and goes on; a refusal of its start is repeated"
)
@pytest.mark.finding(
    "cluster: an API server that starts", "Updates of a pool go on through its starts, and degrade no node."
)
async def test_updates_go_on_through_starts_of_an_api_server(
    cluster: Cluster, make_node: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait, "LONGEST_FOR_HOLDER", 1.0)
    install_rights(cluster)
    members, pool = [], f"starts-{next(_numbers)}"
    for _ in range(6):
        name = make_node()
        cluster.kubeconfig(f"nodeagent:{name}", ["nodeagent"])
        member = SimNode(cluster, name, pool=pool, slots=2, user=f"nodeagent-{name}")
        # It is drained, and rebooted.
        member.want(config("one", {"/etc/unlisted": "1"}))
        members.append(member)
    running = asyncio.gather(*(member.settle() for member in members))

    def begun() -> int:
        leases = cluster.admin.get(SLOT_PATH)["items"]
        held = sum(pool in lease["metadata"]["name"] for lease in leases)
        return held + sum(member.outcomes() == ["done"] for member in members)

    try:
        for number in (1, 4):
            async with asyncio.timeout(120):
                while await asyncio.to_thread(begun) < number:
                    await asyncio.sleep(0.05)
            cluster.apiserver.kill()
            await asyncio.sleep(1.0)
            await start(cluster)
        await asyncio.wait_for(running, 240)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    for member in members:
        assert member.outcomes() == ["done"]
        assert troubles(member) == []
        waits = {event.reason for event in member.world.events if isinstance(event, UpdateWaiting)}
        assert waits <= OUTAGES | {"SlotHeld", "SlotContended"}
        assert lease_of(cluster, member.node) is None
        assert not member.cordoned
