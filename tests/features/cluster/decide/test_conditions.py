# SPDX-License-Identifier: Apache-2.0
"""The conditions of a node during a disruption, each written once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nodeagent import installed
from nodeagent.door import Door
from nodeagent.features.cluster.decide.conditions import (
    LONGEST,
    TYPES,
    NodeState,
    conditions,
    differing,
    node_state,
    shape,
)
from nodeagent.features.cluster.decide.drain import PodWait, Remaining
from nodeagent.report.part_view import NodeCondition, PartView
from nodeagent.report.status import Status

NOW = "2026-11-21T09:00:00Z"
LATER = "2026-11-21T09:05:00Z"
UPDATE = NodeState("nodeagent", "update to rendered-2", draining=True)


@pytest.fixture(autouse=True)
def dusty() -> Iterator[None]:
    """A feature with a condition."""
    condition = NodeCondition(
        kind="Dusty",
        holds="Dust",
        otherwise="Clean",
        message=lambda status: f"since {status.message}" if status.message else "",
    )
    view = PartView(part=object, key="dust", to_json=lambda *_: None, condition=condition)
    with installed.replaced([Door(title="Dust", page="dust.md", status=(view,))]):
        yield


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
        (NodeState(others={"Dusty": "since monday"}), {"Dusty"}),
    ],
)
def test_what_holds(state: NodeState, types: set[str]) -> None:
    assert true(state).keys() == types
    assert tuple(entry["type"] for entry in conditions(state)) == (*TYPES, "Dusty")


def test_a_feature_has_a_condition() -> None:
    assert node_state(Status()).others == {}
    state = node_state(Status(message="x"))
    assert state.others == {"Dusty": "since x"}
    (dusty,) = (entry for entry in conditions(state) if entry["type"] == "Dusty")
    assert dusty == {"type": "Dusty", "status": "True", "reason": "Dust", "message": "since x"}
    assert shape(state) != shape(node_state(Status()))
    assert shape(state) == shape(node_state(Status(message="y")))


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
