# SPDX-License-Identifier: Apache-2.0
"""An API server that is killed and started again with many agents connected: it serves before it has read its roles."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Final

import pytest

from integration.cluster.cluster import Cluster
from integration.cluster.controller import Controller, Memory
from integration.cluster.other_holders import client_at
from integration.cluster.test_rights import documents, path_of
from nodeagent.errors import AgentError
from nodeagent.features.cluster.handshake import Handshake

AGENTS: Final = 40
# Seconds between two reads of a Node.
EVERY: Final = 3.0


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


@pytest.fixture
async def followers(cluster: Cluster) -> AsyncIterator[dict[str, Follower]]:
    """By the names of their Nodes, each with a certificate of its own and the rights that are shipped."""
    for document in documents():
        if cluster.admin.find(f"{path_of(document)}/{document['metadata']['name']}") is None:
            cluster.admin.create(path_of(document), document)
    made: dict[str, Follower] = {}
    async with AsyncExitStack() as stack:
        tasks = []
        for number in range(AGENTS):
            name = f"restarted-{number}"
            await asyncio.to_thread(cluster.node, name)
            kubeconfig = await asyncio.to_thread(cluster.kubeconfig, f"nodeagent:{name}", ["nodeagent"])
            client = await stack.enter_async_context(client_at(cluster, kubeconfig, timeout=10.0))
            follower = made[name] = Follower()
            follower.shake = Handshake(
                client, name, Memory(), changed=lambda _: None, on_error=follower.fault, every=EVERY
            )
            tasks.append(asyncio.create_task(follower.shake.run()))
        yield made
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def all_have(followers: dict[str, Follower], config: str) -> None:
    async with asyncio.timeout(180):
        for follower in followers.values():
            while await follower.desired() != config:
                await asyncio.sleep(0.1)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.finding(
    "cluster: an API server that starts",
    "Agents that are connected to an API server while it starts again report an outage, and no refusal.",
)
async def test_no_agent_takes_the_start_of_an_api_server_for_a_refusal(
    cluster: Cluster, followers: dict[str, Follower]
) -> None:
    first, second = "rendered-before", "rendered-after"
    for name in (first, second):
        Controller(cluster, next(iter(followers))).make(name, x="1")

    def desire(config: str) -> None:
        for name in followers:
            Controller(cluster, name).desire(config)

    await asyncio.to_thread(desire, first)
    await all_have(followers, first)
    cluster.apiserver.kill()
    async with asyncio.timeout(120):
        while not all("KubeUnreachable" in follower.reasons for follower in followers.values()):
            await asyncio.sleep(0.1)
            for follower in followers.values():
                assert await follower.desired() == first, "the last desired config stays"
    # In this thread, because a server ends with the thread that started it.
    cluster.apiserver.start()
    await asyncio.to_thread(cluster.apiserver.wait_ready, 240)
    # They fetch it with their first requests to the server that starts.
    await asyncio.to_thread(desire, second)
    await all_have(followers, second)
    outages = {"KubeUnreachable", "KubeServerFault", "KubeThrottled"}
    assert {reason for follower in followers.values() for reason in follower.reasons} <= outages
