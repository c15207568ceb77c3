# SPDX-License-Identifier: Apache-2.0
"""Reads the objects of a rollout (``decide/rollout.py``): for a user, or for a node that asks whether it may begin.

Nodes must be readable. Pools may be missing, and the user may have no permission to list leases or maintenances: then
flags may be missing, and the answer says so. For a node a missing permission is an error: what cannot be read allows
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Required, TypedDict, TypeVar, cast

from nodeagent.core.coordination.kube_objects import (
    MAINTENANCES,
    LeaseObject,
    MachineConfigPool,
    MachineOSConfig,
    Name,
    Node,
    NodeMaintenance,
    Texts,
)
from nodeagent.core.coordination.kube_time import Uncertain
from nodeagent.features.slots.decide.rollout import ClusterObjects
from nodeagent.features.slots.decide.stuck import NAMESPACE, SLOT_LABEL
from nodeagent.features.slots.nodes import PATH, read_nodes, read_whole
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import Forbidden, NotFound
from nodeagent.update.ports.host import Clock

POOLS: Final = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools"
OS_CONFIGS: Final = "/apis/machineconfiguration.openshift.io/v1/machineosconfigs"
SLOTS: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
PREFIX: Final = "node-"
# The functional form, because of the names of its keys.
Reported = TypedDict(
    "Reported",
    {
        "machineconfiguration.openshift.io/currentConfig": str,
        "machineconfiguration.openshift.io/currentImage": str,
        "machineconfiguration.openshift.io/desiredConfig": str,
        "machineconfiguration.openshift.io/desiredImage": str,
        "machineconfiguration.openshift.io/reason": str,
        "machineconfiguration.openshift.io/state": str,
    },
    total=False,
)
T = TypeVar("T")


async def read_objects(
    client: KubeClient, clock: Clock, *, namespace: str, whole: bool = False
) -> tuple[ClusterObjects, Sequence[str]]:
    """Return the objects, and messages about what could not be read. ``namespace`` is that of the node leases.
    ``whole``: all of each Node, also in a large cluster.

    Raises what the client raises; ``Forbidden`` only for nodes and pools, without which there is no answer.
    """
    unknown: list[str] = []
    # Nodes first: without them there is no answer, and the other lists are not needed.
    nodes, bare = (await client.objects(PATH, Node), ()) if whole else await read_nodes(client)
    pools = await _list(client, POOLS, MachineConfigPool)
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    leases = await _list_if_allowed(client, path, LeaseObject, unknown)
    slots = await _list_if_allowed(client, SLOTS, LeaseObject, unknown, labelSelector=SLOT_LABEL)
    # Whether a holder is well is in its status.
    holders = {((slot.get("spec") or {}).get("holderIdentity") or "").partition("/")[0] for slot in slots}
    again = await read_whole(client, holders & {*bare})
    nodes = [again.get(node["metadata"]["name"], node) for node in nodes]
    if missing := len(bare) - len(again):
        unknown.append(f"planned maintenances of {missing} nodes (--all reads them)")
    maintenances = await _list_if_allowed(client, MAINTENANCES, NodeMaintenance, unknown)
    before = len(unknown)
    layered = await _list_if_allowed(client, OS_CONFIGS, MachineOSConfig, unknown) if pools else []
    # None is not "no images": without the permission it is unknown which image a pool should have.
    images = _images(layered) if len(unknown) == before else None
    try:
        now = client.server_clock.earliest(clock.monotonic())
    except Uncertain:
        now = None
    named = ((lease["metadata"]["name"], lease) for lease in leases)
    held = {name.removeprefix(PREFIX): lease for name, lease in named if name.startswith(PREFIX)}
    return ClusterObjects(nodes, pools, held, maintenances, images, now, slots), unknown


class _Meta(TypedDict, total=False):
    name: Required[Name]
    labels: Texts | None
    annotations: Reported | None


class NodeReport(TypedDict):
    """A Node without what only others read."""

    metadata: _Meta


async def read_members(client: KubeClient, not_older: str) -> ClusterObjects:
    """Return the nodes, with their labels and what their agents report, and the pools. ``not_older`` is the
    resourceVersion of a Node. Raises what the client raises."""
    # In a cluster without pools, the labels of the nodes are the pools.
    members = await client.metadata("/api/v1/nodes", NodeReport, not_older=not_older)
    return ClusterObjects(cast("list[Node]", members), await read_pools(client))


async def read_pools(client: KubeClient) -> list[MachineConfigPool]:
    return await _list(client, POOLS, MachineConfigPool)


async def _list(client: KubeClient, path: str, kind: type[T], **query: str) -> list[T]:
    try:
        return await client.objects(path, kind, **query)
    except NotFound:
        # The cluster does not have this kind.
        return []


async def _list_if_allowed(client: KubeClient, path: str, kind: type[T], unknown: list[str], **query: str) -> list[T]:
    try:
        return await _list(client, path, kind, **query)
    except Forbidden as error:
        unknown.append(error.message)
        return []


def _images(layered: Sequence[MachineOSConfig]) -> Mapping[str, str]:
    """Return the image of each pool that a MachineOSConfig names; "" for an image that has not been built yet."""
    images = {}
    for os_config in layered:
        pool = ((os_config.get("spec") or {}).get("machineConfigPool") or {}).get("name")
        if pool:
            images[pool] = (os_config.get("status") or {}).get("currentImagePullSpec") or ""
    return images
