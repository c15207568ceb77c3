# SPDX-License-Identifier: Apache-2.0
"""Objects of an API server that are read for a slot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from integration.fuzz.api import read_objects
from integration.fuzz.target import Target, choices
from nodeagent.core.coordination.kube_objects import LeaseObject, MachineConfigPool, Node
from nodeagent.features.slots.decide.answer import rollout_to_dict
from nodeagent.features.slots.decide.limits import newest_size, other_zones, zone_refusal
from nodeagent.features.slots.decide.order import RolloutOrder, turn_gate
from nodeagent.features.slots.decide.pool import SlotKind, SlotPool, free_indices, pool_pause, read_slots, released
from nodeagent.features.slots.decide.rollout import ClusterObjects, rollout_of


def _lease(lease: LeaseObject) -> None:
    pool = SlotPool("p", SlotKind.DISRUPT, 2, 60.0)
    found = read_slots(pool, [lease])
    free_indices(pool, found, 0)
    pool_pause(found, 60.0, 1e9, 1e9, lambda _: 1.0)
    newest_size(found, "p", 1e9)
    zone_refusal("p", "a", other_zones(found, "a"))
    for slot in found:
        released(slot, "n", 1e9)
    node: Node = {"metadata": {"name": "n", "uid": "u", "resourceVersion": "1"}}
    rollout_of(ClusterObjects([node], leases={"n": lease}, now=1e9), silent=True)


def _node(node: Node) -> None:
    objects = ClusterObjects([node])
    rollout_to_dict(rollout_of(objects, silent=True), ())
    turn_gate(objects, "n", RolloutOrder(("worker",), 1))


def _pool(pool: MachineConfigPool) -> None:
    node: Node = {"metadata": {"name": "n", "uid": "u", "resourceVersion": "1", "labels": {"a": "b"}}}
    rollout_to_dict(rollout_of(ClusterObjects([node], [pool], images={})), ())


READERS: Final[Mapping[type[Any], Callable[[Any], object]]] = {
    LeaseObject: _lease,
    Node: _node,
    MachineConfigPool: _pool,
}


def slots(data: bytes) -> None:
    read_objects(data, READERS)


TARGETS: Final = (Target("api-slots", slots, [b"{}", b'{"metadata": {"annotations": {}}}', *choices(40)]),)
