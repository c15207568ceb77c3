# SPDX-License-Identifier: Apache-2.0
"""The conditions of a node during a disruption, each written once."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.core.coordination.drain import PodWait, Remaining
from nodeagent.features.cluster.decide.conditions import LONGEST, TYPES, NodeState, conditions, differing

NOW = "2026-11-21T09:00:00Z"
LATER = "2026-11-21T09:05:00Z"
UPDATE = NodeState("nodeagent", "update to rendered-2", draining=True)


def true(state: NodeState) -> dict[str, str]:
    return {entry["type"]: entry["message"] for entry in conditions(state) if entry["status"] == "True"}


@pytest.mark.parametrize(
    ("state", "types"),
    [
        (NodeState(), set()),
        (NodeState("jane", "disks", maintenance=True), {"MaintenanceInProgress"}),
        (NodeState("jane", "disks", maintenance=True, planned=True), {"MaintenancePlanned"}),
        (NodeState("nodeagent", "update", planned=True), {"MaintenancePlanned"}),
        (UPDATE, {"DrainInProgress"}),
        (NodeState("nodeagent", "update", drained=True), {"Drained"}),
        (NodeState(drift="file:/etc/x content differs"), {"ConfigDrift"}),
    ],
)
def test_what_holds(state: NodeState, types: set[str]) -> None:
    assert true(state).keys() == types
    assert tuple(entry["type"] for entry in conditions(state)) == TYPES


def test_who_why_and_what_is_left() -> None:
    pods = [Remaining("shop", f"web-{n}", PodWait.BUDGET, "web") for n in range(7)]
    state = NodeState("nodeagent", "update to rendered-2", draining=True, remaining=pods)
    message = true(state)["DrainInProgress"]
    assert message.startswith("nodeagent: update to rendered-2; 7 pods are left: shop/web-0: a disruption budget: web;")
    assert message.endswith("; and 2 more")
    long = NodeState("nodeagent", "x" * 5000, drained=True)
    assert len(true(long)["Drained"]) == LONGEST


def test_only_what_differs_is_written() -> None:
    first = differing(conditions(UPDATE), [], NOW)
    assert [entry["type"] for entry in first] == ["DrainInProgress"], "what was never true is not written"
    kubelet: dict[str, Any] = {"type": "Ready", "status": "True"}
    assert differing(conditions(UPDATE), [kubelet, *first], LATER) == []

    other = NodeState("nodeagent", "update to rendered-2", draining=True, remaining=[Remaining("a", "b", PodWait.BUSY)])
    (words,) = differing(conditions(other), first, LATER)
    assert (words["lastTransitionTime"], words["lastHeartbeatTime"]) == (NOW, LATER)

    over = differing(conditions(NodeState()), first, LATER)
    assert [(entry["type"], entry["status"], entry["lastTransitionTime"]) for entry in over] == [
        ("DrainInProgress", "False", LATER)
    ]
