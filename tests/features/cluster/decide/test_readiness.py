# SPDX-License-Identifier: Apache-2.0
"""When a node counts as ready."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from nodeagent.features.cluster.decide.readiness import unready

BEFORE, SINCE, AFTER = "2026-11-21T08:59:59.9Z", "2026-11-21T09:00:00.400Z", "2026-11-21T09:00:00.400001Z"
SOON, LATER = "2026-11-21T09:00:05Z", "2026-11-21T09:00:16Z"
SET_BACK = "2026-11-21T08:00:00Z"


def node(status: str = "True", heartbeat: str = BEFORE, **more: str) -> dict[str, Any]:
    ready = {"type": "Ready", "status": status, "lastHeartbeatTime": heartbeat, **more}
    return {"status": {"conditions": [{"type": "MemoryPressure", "status": "False"}, ready]}}


def lease(renewed: str | None) -> dict[str, Any]:
    return {"spec": {"renewTime": renewed} if renewed else {}}


NOT_READY = node("False", AFTER, reason="KubeletNotReady", message="cni plugin not initialized")


@pytest.mark.parametrize(
    ("found", "renewed", "since", "now", "words"),
    [
        (node(), AFTER, SINCE, LATER, ""),
        (node(), SINCE, SINCE, LATER, ""),
        (node(), AFTER, SINCE, SOON, "not reported its condition"),
        (node(), BEFORE, SINCE, LATER, "not renewed"),
        (node(), None, SINCE, LATER, "not renewed"),
        (node(), BEFORE, "", SOON, ""),
        (node(), BEFORE, SINCE, SET_BACK, ""),
        (node(heartbeat="2026-11-21T09:00:00Z"), BEFORE, SINCE, SOON, ""),
        (node(heartbeat="2026-11-21T08:59:59Z"), AFTER, SINCE, SOON, "not reported its condition"),
        (NOT_READY, AFTER, SINCE, LATER, "cni plugin"),
        (node("Unknown", AFTER, reason="NodeStatusUnknown"), AFTER, SINCE, LATER, "NodeStatusUnknown"),
        ({"status": {"conditions": []}}, AFTER, SINCE, LATER, "not reported yet"),
        ({}, AFTER, SINCE, LATER, "not reported yet"),
    ],
)
def test_a_node_is_ready_by_a_report_from_after_the_action(
    found: dict[str, Any], renewed: str | None, since: str, now: str, words: str
) -> None:
    why = unready(found, lease(renewed), since, now)
    assert (words in why) if words else why == ""


def test_without_the_right_to_read_the_lease_the_condition_decides() -> None:
    assert unready(node(), None, SINCE, LATER) == ""
    assert "not reported its condition" in unready(node(), None, SINCE, SOON)


@pytest.mark.parametrize(
    ("capacity", "outdated", "stale"),
    [
        ({"pods": "110"}, {"pods": "110"}, True),
        ({"pods": "250"}, {"pods": "110"}, False),
        ({"pods": "40"}, {"pods": "110"}, False),
        ({}, {"pods": "110"}, False),
    ],
)
def test_a_kubelet_with_the_wrong_configuration_shows_its_capacity(
    capacity: dict[str, str], outdated: dict[str, str], stale: bool
) -> None:
    found = node()
    found["status"]["capacity"] = capacity
    assert ("still reports" in unready(found, None, SINCE, LATER, outdated)) is stale


@pytest.mark.parametrize(
    ("kept_back", "allocatable", "wrong"),
    [
        ({"cpu": "0.5"}, {"cpu": "3500m"}, ""),
        ({"cpu": "0.5"}, {"cpu": "4"}, "its kubelet reports 4 of cpu for pods, 3.5 is configured"),
        # Huge pages are no memory for other pods.
        ({"memory": "1048576"}, {"memory": "5Mi"}, ""),
        ({"memory": "1048576"}, {"memory": "7Mi"}, "7Mi of memory"),
        ({"memory": "99999999"}, {"memory": "0"}, ""),
        # Without capacity isolation a Node has no storage.
        ({"ephemeral-storage": "1"}, {}, ""),
        ({"cpu": "1"}, {}, ""),
    ],
)
def test_a_node_keeps_back_what_is_configured(
    kept_back: dict[str, str], allocatable: dict[str, str], wrong: str
) -> None:
    found = node()
    found["status"] |= {
        "capacity": {"cpu": "4", "memory": "8Mi", "hugepages-2Mi": "2Mi", "pods": "110"},
        "allocatable": allocatable,
    }
    amounts = {resource: Decimal(amount) for resource, amount in kept_back.items()}
    why = unready(found, None, SINCE, LATER, None, amounts)
    assert wrong in why
    assert bool(wrong) == bool(why)
