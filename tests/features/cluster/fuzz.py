# SPDX-License-Identifier: Apache-2.0
"""Objects and refusals of an API server that the cluster reads, and its row of the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from integration.fuzz.api import OBJECTS, REFUSALS, WHOLE, read_objects, read_refusals
from integration.fuzz.records import DAMAGE, RECORD
from integration.fuzz.target import Target, choices, document
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
from nodeagent.kube.decode import decoded
from nodeagent.kube.errors import ServerFault
from nodeagent.update.states import Phase

CLAIM: Final = Claim("nodeagent", "op", "why", "host")
PROGRESS: Final = UpdateProgress(Phase.DRAINING, "", "c")
SINCE: Final = "2026-01-01T00:00:00Z"


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


def token(data: bytes) -> None:
    found = document(RECORD, data)
    if found is not None:
        with suppress(*DAMAGE):
            msgspec.convert(found, LeaseToken)


TARGETS: Final = (
    Target("cluster-objects", objects, OBJECTS),
    Target("cluster-refusals", refusals, REFUSALS),
    Target("cluster-token", token, [b"", b"{}", b"[]", json.dumps(RECORD).encode(), *choices(40)]),
)
