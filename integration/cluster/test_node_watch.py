# SPDX-License-Identifier: Apache-2.0
"""The watch of the own Node on a real API server: what it sends, what it refuses, and which right it needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from integration.cluster.cluster import Cluster
from integration.cluster.controller import Controller, Memory
from integration.cluster.other_holders import client_at
from integration.cluster.test_rights import RBAC, documents, path_of
from nodeagent.features.cluster.handshake import Handshake
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import Forbidden, Gone
from nodeagent.kube.watch import ANY, WatchedChange, changes

NODES = "/api/v1/nodes"


@pytest.fixture
async def agent(cluster: Cluster, node: str) -> AsyncIterator[KubeClient]:
    """The client of the agent of ``node``, with the rights that are shipped."""
    for document in documents():
        if cluster.admin.find(f"{path_of(document)}/{document['metadata']['name']}") is None:
            cluster.admin.create(path_of(document), document)
    async with client_at(cluster, cluster.kubeconfig(f"nodeagent:{node}", ["nodeagent"])) as client:
        yield client


async def watched(client: KubeClient, node: str, since: str, seconds: int, most: int = 100) -> list[WatchedChange]:
    """Return what a watch brings until its end, ``most`` changes at most."""
    found: list[WatchedChange] = []
    async with aclosing(changes(client, NODES, node, since=since, seconds=seconds)) as watch:
        async for change in watch:
            found.append(change)
            if len(found) == most:
                break
    return found


async def test_changes_bookmarks_and_the_end_in_time(cluster: Cluster, node: str, agent: KubeClient) -> None:
    read = (await agent.node(node))["metadata"]["resourceVersion"]
    began = asyncio.get_running_loop().time()
    watching = asyncio.create_task(watched(agent, node, read, 6))
    await asyncio.sleep(1.0)
    await asyncio.to_thread(cluster.admin.patch, f"{NODES}/{node}", {"metadata": {"annotations": {"key": "value"}}})
    found = await watching
    assert 5 <= asyncio.get_running_loop().time() - began < 30
    items = [change.item for change in found if change.item is not None]
    assert [(item["metadata"].get("annotations") or {}).get("key") for item in items] == ["value"]
    assert found[-1].item is None, "a bookmark before the end"
    assert int(found[-1].position) >= int(found[0].position) > int(read)


async def test_only_the_metadata_are_sent(node: str, agent: KubeClient) -> None:
    query = f"?watch=true&fieldSelector=metadata.name%3D{node}&resourceVersion=0&timeoutSeconds=5"
    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
    async with aclosing(agent.parts(NODES + query, accept, 30.0)) as parts:
        text = await anext(parts)
    assert b'"kind":"PartialObjectMetadata"' in text
    assert b'"spec"' not in text


async def test_a_version_that_is_too_old_and_the_position_that_never_is(
    cluster: Cluster, node: str, agent: KubeClient
) -> None:
    """A server that was started again keeps no history, also for a Node that was not written since."""
    read = (await agent.node(node))["metadata"]["resourceVersion"]
    await asyncio.to_thread(cluster.node, f"{node}-later")
    await asyncio.to_thread(cluster.apiserver.kill)
    # In this thread, because a server ends with the thread that started it.
    cluster.apiserver.start()
    await asyncio.to_thread(cluster.apiserver.wait_ready, 240)
    assert (await agent.node(node))["metadata"]["resourceVersion"] == read
    with pytest.raises(Gone):
        await watched(agent, node, read, 5)
    (first,) = await watched(agent, node, ANY, 5, most=1)
    assert (first.position, first.item is not None) == (read, True)


async def test_a_desired_config_is_seen_at_once(cluster: Cluster, node: str, agent: KubeClient) -> None:
    controller, changed, faults = Controller(cluster, node), asyncio.Queue[bool](), list[str]()
    # Of a node that a controller manages, so that the fetch is not delayed.
    topology = {"machineconfiguration.openshift.io/controlPlaneTopology": "HighlyAvailable"}
    await asyncio.to_thread(cluster.admin.patch, f"{NODES}/{node}", {"metadata": {"annotations": topology}})
    handshake = Handshake(
        agent,
        node,
        Memory(),
        changed=changed.put_nowait,
        on_error=lambda fault: faults.append(fault.reason if fault else ""),
        # Reads alone would be too late.
        every=600.0,
    )
    running = asyncio.create_task(handshake.run())
    try:
        for name in (f"watched-{node}-1", f"watched-{node}-2"):
            await asyncio.to_thread(controller.make, name, x="1")
            await asyncio.to_thread(controller.desire, name)
            async with asyncio.timeout(60):
                while (source := await handshake.desired()) is None or source.name != name:
                    await changed.get()
        # One read, one watch, and the configs, of which the first may be asked for in two groups.
        assert agent.requests <= 6
        assert faults == []
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("limited", [True, False])
async def test_the_right_to_watch_one_node_suffices(cluster: Cluster, node: str, limited: bool) -> None:
    """RBAC takes the name of a field selector for that of an object. Without the right, the Node is polled."""
    user = f"watches-{'one' if limited else 'none'}-{node}"
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    if limited:
        rules.append({"apiGroups": [""], "resources": ["nodes"], "verbs": ["watch"], "resourceNames": [node]})
    cluster.admin.create(f"{RBAC}/clusterroles", {"metadata": {"name": user}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    cluster.admin.create(
        f"{RBAC}/clusterrolebindings", {"metadata": {"name": user}, "roleRef": role, "subjects": [subject]}
    )
    async with client_at(cluster, cluster.kubeconfig(user)) as client:
        await client.node(node)
        if limited:
            assert await watched(client, node, ANY, 5, most=1)
        with pytest.raises(Forbidden, match="cannot watch"):
            await watched(client, node if not limited else f"not-{node}", ANY, 5)
        changed, faults = asyncio.Event(), list[str]()
        handshake = Handshake(
            client,
            node,
            Memory(),
            changed=lambda _: changed.set(),
            on_error=lambda fault: faults.append(fault.reason if fault else ""),
            every=0.2,
        )
        running = asyncio.create_task(handshake.run())
        try:
            before = client.requests
            await asyncio.sleep(2.0)
            assert (client.requests - before <= 2) is limited
            annotation = {"machineconfiguration.openshift.io/desiredConfig": "../none"}
            await asyncio.to_thread(cluster.admin.patch, f"{NODES}/{node}", {"metadata": {"annotations": annotation}})
            await asyncio.wait_for(changed.wait(), 30)
            assert faults == []
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
