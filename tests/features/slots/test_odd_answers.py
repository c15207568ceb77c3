# SPDX-License-Identifier: Apache-2.0
"""Leases and Nodes of another form than the API's are faults of the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from integration.fuzz.api import WHOLE
from nodeagent.features.slots.decide.answer import rollout_to_dict
from nodeagent.features.slots.decide.order import RolloutOrder
from nodeagent.features.slots.decide.pool import SlotKind, SlotPool
from nodeagent.features.slots.decide.rollout import rollout_of
from nodeagent.features.slots.leases import KubeSlots
from nodeagent.features.slots.objects import read_objects
from nodeagent.features.slots.turn import KubeTurn
from nodeagent.kube.client import KubeClient
from tests.kube.odd_answers import HOST, MISSING, Readers, odd, read_all
from tests.kube.test_client import Clock


async def rollout(client: KubeClient) -> None:
    objects, unknown = await read_objects(client, Clock(), namespace="l")
    rollout_to_dict(rollout_of(objects), unknown)


READERS: Final[Readers] = {
    "rollout": rollout,
    "slots": lambda client: KubeSlots(client, HOST, SlotPool("p", SlotKind.DISRUPT, 1), Clock()).check("op"),
    "turn": lambda client: KubeTurn(client, "n", RolloutOrder(("a",), 1), Clock()).check(),
}


async def test_an_object_of_the_api_is_read(tmp_path: Path) -> None:
    assert "KubeServerFault" not in (await read_all(tmp_path, WHOLE, READERS)).values()


@pytest.mark.finding(
    "attack: answers of an API server", "An object of another form is a fault of the server for every reader."
)
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata", MISSING),
        ("metadata.name", 7),
        ("metadata.uid", []),
        ("metadata.annotations", {"a": None}),
        ("metadata.ownerReferences", [None]),
        ("spec.holderIdentity", {}),
        ("spec.configuration", "x"),
        ("spec.nodeSelector", {"matchLabels": []}),
        ("spec.nodeSelector", {"matchExpressions": [{"key": {}, "operator": "In", "values": 7}]}),
        ("spec.machineConfigPool", []),
        ("status.observedGeneration", "many"),
        ("status.conditions", {}),
    ],
)
async def test_an_odd_object_is_a_fault_of_the_server(tmp_path: Path, path: str, value: Any) -> None:
    assert "KubeServerFault" in (await read_all(tmp_path, odd(path, value), READERS)).values()
