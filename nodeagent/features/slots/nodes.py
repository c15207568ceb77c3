# SPDX-License-Identifier: Apache-2.0
"""Reads the Nodes of a cluster for a rollout, without making its API server encode all of each of thousands.

Labels and annotations decide about the rollout, and are a tenth of a Node. Of the rest, taints and cordons are signs of
other actors: ``managedFields`` of the metadata shows which Nodes have any, and these are read whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Final, cast

from nodeagent.core.coordination.kube_objects import ListedNode, ManagedMeta, Node
from nodeagent.kube.client import CHUNK, METADATA, KubeClient

PATH: Final = "/api/v1/nodes"
# Nodes that are read one by one, and how many at a time. A list of all costs as much as some hundred of these.
MOST: Final = 300
TOGETHER: Final = 10
SIGNS: Final = ("f:taints", "f:unschedulable")


async def read_nodes(client: KubeClient) -> tuple[Sequence[Node], Collection[str]]:
    """Return the Nodes, and the names of those of which only the metadata were read: they have neither a cordon nor a
    taint. Of a small cluster, and of one with many signs, all are whole. Raises what the client raises.
    """
    listed = await client.objects(PATH, ListedNode, accept=METADATA)
    metas = {node["metadata"]["name"]: node["metadata"] for node in listed}
    signed = {name for name, meta in metas.items() if may_have_signs(meta)}
    if len(metas) <= CHUNK or len(signed) > MOST:
        return await client.objects(PATH, Node), ()
    bare = {name: cast("Node", {"metadata": meta}) for name, meta in metas.items() if name not in signed}
    return [*bare.values(), *(await read_whole(client, signed)).values()], bare.keys()


async def read_whole(client: KubeClient, names: Collection[str]) -> dict[str, Node]:
    """Return Nodes by name, without those that do not exist. Raises what the client raises."""
    requests = asyncio.Semaphore(TOGETHER)

    async def read(name: str) -> Sequence[Node]:
        async with requests:
            # Of a list, because that is the right that the other requests need.
            return await client.objects(PATH, Node, fieldSelector=f"metadata.name={name}")

    answers = await asyncio.gather(*(read(name) for name in names))
    return {node["metadata"]["name"]: node for nodes in answers for node in nodes}


def may_have_signs(meta: ManagedMeta) -> bool:
    """Return whether a client has set taints or the cordon; True if that is not recorded."""
    managers = meta.get("managedFields")
    if not managers:
        return True
    specs = [(manager.get("fieldsV1") or {}).get("f:spec") for manager in managers]
    return any(isinstance(spec, dict) and any(sign in spec for sign in SIGNS) for spec in specs)
