# SPDX-License-Identifier: Apache-2.0
"""Objects, refusals and watches of an API server that the cluster reads, and its row of the store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any, Final, cast

from integration.fuzz.api import OBJECTS, REFUSALS, WHOLE, read_objects, read_refusals
from integration.fuzz.records import DAMAGE, RECORD
from integration.fuzz.target import Target, choices, document
from nodeagent import typed
from nodeagent.core.coordination.annotations import read_request
from nodeagent.core.coordination.kube_objects import LeaseObject, MachineConfigNode, Node, Pod
from nodeagent.core.coordination.kube_time import ServerClock
from nodeagent.core.coordination.lease import Claim, read_lease
from nodeagent.features.cluster.decide.annotations import drain_request, source_of
from nodeagent.features.cluster.decide.bootc_node import BootcNode, bootc_gates, is_managed
from nodeagent.features.cluster.decide.conditions import NodeState, conditions, differing
from nodeagent.features.cluster.decide.drain import (
    DrainPolicy,
    PodWait,
    cause_of,
    classify,
    daemon_set_of,
    eviction,
    remaining_pod,
    remedy,
)
from nodeagent.features.cluster.decide.drain_order import DrainOrder, present_step
from nodeagent.features.cluster.decide.lease import LeaseToken, judge, renewal, take_over
from nodeagent.features.cluster.decide.machine_config_node import UpdateProgress, changed_status
from nodeagent.features.cluster.decide.readiness import unready
from nodeagent.features.cluster.node_watch import is_older, version_of
from nodeagent.kube.client import KubeClient
from nodeagent.kube.decode import decoded
from nodeagent.kube.errors import KubeFault, ServerFault
from nodeagent.kube.watch import changes
from nodeagent.update.states import Phase

CLAIM: Final = Claim("nodeagent", "op", "why", "host")
PROGRESS: Final = UpdateProgress(Phase.DRAINING, "", "c")
SINCE: Final = "2026-01-01T00:00:00Z"
NAME: Final = "slot-disrupt-p-0"
EVENT: Final[dict[str, Any]] = {"type": "MODIFIED", "object": {**WHOLE, "kind": "Node", "code": 410, "message": "old"}}


def _node(node: Node) -> None:
    is_managed(node)
    unready(node, None, SINCE, "2026-01-01T01:00:00Z", {"pods": "9"}, {})
    drain_request(read_request(node), "c")
    differing(conditions(NodeState("a", "b", draining=True)), (node.get("status") or {}).get("conditions") or (), SINCE)


def _pod(pod: Pod) -> None:
    for policy in (DrainPolicy(), DrainPolicy(unmanaged=False, local_data=False)):
        classify(pod, policy)
    daemon_set_of(pod)
    eviction(pod)
    present_step(DrainOrder(("a=b",), ("!c",)), [pod])
    remedy(remaining_pod(pod, PodWait.BUDGET, "x"))


def _lease(lease: LeaseObject) -> None:
    held, clock = read_lease(lease), ServerClock().updated(1e9, 0.0, 1.0)
    judge(held, None, CLAIM, clock, 5.0)
    renewal(held, 60.0, 1e9)
    take_over(held, CLAIM, "n", "u", 60.0, 1e9)


def _config_node(found: MachineConfigNode) -> None:
    changed_status(PROGRESS, found.get("status") or {}, SINCE)


READERS: Final[Mapping[type[Any], Callable[[Any], object]]] = {
    Node: _node,
    Pod: _pod,
    LeaseObject: _lease,
    MachineConfigNode: _config_node,
    BootcNode: bootc_gates,
}


def objects(data: bytes) -> None:
    read_objects(data, READERS)
    # The annotation is read from the object before it is decoded.
    if (found := document(WHOLE, data)) is not None:
        with suppress(ServerFault):
            decoded(Node, found, "GET /x")
            source_of(found)


def refusals(data: bytes) -> None:
    for status, detail, _message in read_refusals(data):
        cause_of(status, detail)


class _Stream:
    """A client of which each watch brings ``text`` in parts of ``size`` bytes."""

    def __init__(self, text: bytes, size: int) -> None:
        self._parts = [text[at : at + size] for at in range(0, len(text), size)]

    async def parts(self, *_: object) -> AsyncGenerator[bytes]:
        for part in self._parts:
            yield part


async def _follow(client: KubeClient) -> None:
    with suppress(KubeFault):
        async with aclosing(changes(client, "/api/v1/nodes", NAME, since="1", seconds=300)) as watch:
            async for change in watch:
                is_older(change.position, "1")
                if change.item is not None:
                    version_of(change.item["metadata"])
                    read_request({"metadata": change.item["metadata"]})


def events(data: bytes) -> None:
    """The first byte is the size of the parts, and the rest an event, or another text."""
    size, text = data[0] + 1 if data else 1, data[1:]
    if (found := document(EVENT, text)) is not None:
        text = json.dumps(found).encode()
    asyncio.run(_follow(cast("KubeClient", _Stream(text + b"\n", size))))


def token(data: bytes) -> None:
    found = document(RECORD, data)
    if found is not None:
        with suppress(*DAMAGE):
            typed.convert(found, LeaseToken)


EVENTS: Final = (
    b"",
    b'\x05{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}',
    b'\xff{"type": "ERROR", "object": {"code": 410}}\n{"type": "ERROR", "object": {}}',
    b"\x00<html>\r\n\n\r",
    *(b"\x20" + each for each in choices(40)),
)
TARGETS: Final = (
    Target("cluster-objects", objects, OBJECTS),
    Target("cluster-refusals", refusals, REFUSALS),
    Target("cluster-watch", events, EVENTS),
    Target("cluster-token", token, [b"", b"{}", b"[]", json.dumps(RECORD).encode(), *choices(40)]),
)
