# SPDX-License-Identifier: Apache-2.0
"""Slots whose holder does not give them back."""

from __future__ import annotations

from typing import Any, Final

import pytest

from nodeagent.features.slots.decide.rollout import ClusterObjects, rollout_of
from nodeagent.features.slots.decide.stuck import REBOOT, StuckSlot, stuck_slots
from tests.features.slots.decide.test_rollout import A, B, node

SINCE: Final = "2026-01-01T00:00:00Z"
NOW: Final = 1767225600.0 + REBOOT


def slot(holder: str = "w1/u1", owner: str = "w1", **spec: Any) -> Any:
    owners = [{"kind": "Node", "name": owner, "uid": owner}] if owner else []
    labels = {"nodeagent.org/slot": "disrupt", "nodeagent.org/pool": "workers"}
    about = {"name": "slot-disrupt-workers-0", "uid": "u", "resourceVersion": "1", "ownerReferences": owners}
    return {"metadata": {**about, "labels": labels}, "spec": {"holderIdentity": holder, "acquireTime": SINCE, **spec}}


def ready(status: str, found: dict[str, Any]) -> dict[str, Any]:
    condition = {"type": "Ready", "status": status, "lastTransitionTime": SINCE}
    return {**found, "status": {"conditions": [{"type": "DiskPressure", "status": "False"}, condition]}}


FAILED: Final = node("w1", A, B, "Degraded", notes={"machineconfiguration.openshift.io/reason": "JobFailed: app"})


@pytest.mark.finding("cluster: dead slot holders", "`fleet status` names a slot that no holder gives back.")
@pytest.mark.parametrize(
    ("held", "nodes", "now", "why"),
    [
        (slot(), [node("w1", A, B, "Working")], NOW + 1, ""),
        (slot(), [node("w1")], NOW + 1, ""),
        (slot(holder=""), [], NOW + 1, ""),
        (slot(), [node("w2")], NOW + 1, "its Node does not exist"),
        (slot(owner="former"), [node("w1")], NOW + 1, "its Node was created again"),
        (slot(owner=""), [node("w1")], NOW + 1, ""),
        (slot(), [FAILED], NOW + 1, "its update failed: JobFailed"),
        (slot(), [node("w1", A, B, "Degraded")], NOW + 1, "its update failed: degraded"),
        (slot(), [ready("Unknown", node("w1", A, B, "Working"))], NOW + 1, f"its Node is not ready since {SINCE}"),
        (slot(), [ready("False", node("w1", A, B, "Working"))], NOW + 1, f"its Node is not ready since {SINCE}"),
        # It may be rebooting.
        (slot(), [ready("Unknown", node("w1", A, B, "Working"))], NOW - 1, ""),
        (slot(), [ready("Unknown", node("w1", A, B, "Working"))], None, ""),
        (slot(), [ready("True", node("w1", A, B, "Working"))], NOW + 1, ""),
    ],
)
def test_why_a_slot_is_stuck(held: Any, nodes: list[Any], now: float | None, why: str) -> None:
    fleet = rollout_of(ClusterObjects(nodes))
    stuck = stuck_slots([held], {found["metadata"]["name"]: found for found in nodes}, fleet, now)
    wanted = [StuckSlot("slot-disrupt-workers-0", "workers", "w1", SINCE, why)] if why else []
    assert stuck == wanted


def test_the_command_frees_it() -> None:
    found = StuckSlot("slot-stage-infra-3", "infra", "w1", SINCE, "its Node does not exist")
    assert found.command == "kubectl delete lease -n nodeagent slot-stage-infra-3"
