# SPDX-License-Identifier: Apache-2.0
"""The MachineConfigNode of a node, by the schema of the real resource."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest

from integration.cluster.cluster import Cluster
from integration.cluster.other_holders import client_of
from nodeagent.features.cluster import node as kube_node
from nodeagent.features.cluster.decide.conditions import NodeState
from nodeagent.features.cluster.decide.machine_config_node import UpdateProgress
from nodeagent.features.cluster.node import MACHINE_CONFIG_NODES, ControlledNodeConditions
from nodeagent.host.clock import SystemClock
from nodeagent.kube.client import Object
from nodeagent.kube.errors import Conflict
from nodeagent.update.states import Phase

PHASES = (Phase.STAGING, Phase.LEASING, Phase.DRAINING, Phase.WRITING, Phase.ACTING, Phase.REBOOTING, Phase.RELEASING)


def make_machine_config_node(cluster: Cluster, node: str, desired: str = "rendered-b") -> None:
    cluster.admin.create(
        MACHINE_CONFIG_NODES,
        {
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfigNode",
            "metadata": {"name": node},
            "spec": {"configVersion": {"desired": desired}, "node": {"name": node}, "pool": {"name": "worker"}},
        },
    )


def state(phase: Phase, current: str = "", **about: Any) -> NodeState:
    return NodeState(progress=UpdateProgress(phase, current, current or "rendered-b", **about))


def there(cluster: Cluster, node: str) -> dict[str, str]:
    status = cluster.admin.get(f"{MACHINE_CONFIG_NODES}/{node}").get("status", {})
    return {entry["type"]: entry["status"] for entry in status.get("conditions", ())}


@pytest.mark.finding(
    "peers: MachineConfigNode",
    "The status of the MachineConfigNode of the node is written, in the order of the machine-config-daemon.",
)
async def test_an_update_passes_the_schema_in_each_phase(cluster: Cluster, node: str) -> None:
    make_machine_config_node(cluster, node)
    pinned = {
        "type": "PinnedImageSetsDegraded",
        "status": "False",
        "reason": "AsExpected",
        "message": "",
        "lastTransitionTime": "2026-11-24T00:00:00Z",
    }
    cluster.admin.patch(f"{MACHINE_CONFIG_NODES}/{node}/status", {"status": {"conditions": [pinned]}})
    async with client_of(cluster) as client:
        writer = ControlledNodeConditions(client, node, SystemClock())
        await writer.publish(state(Phase.IDLE, "rendered-a"))
        assert there(cluster, node)["Updated"] == "True"
        for phase in PHASES:
            await writer.publish(state(phase, drained=phase not in PHASES[:3]))
        assert there(cluster, node)["UpdateComplete"] == "Unknown"
        failed = state(Phase.DEGRADED, reason="JobFailed", why="restart app.service failed")
        await writer.publish(failed)
        assert there(cluster, node)["NodeDegraded"] == "True"
        await writer.publish(state(Phase.IDLE, "rendered-b"))
        asked = client.requests
        await writer.publish(state(Phase.IDLE, "rendered-b"))
        assert client.requests == asked
    found = there(cluster, node)
    assert found.pop("PinnedImageSetsDegraded") == "False"
    assert {kind for kind, value in found.items() if value != "False"} == {"Updated"}
    status = cluster.admin.get(f"{MACHINE_CONFIG_NODES}/{node}")["status"]
    assert status["configVersion"] == {"current": "rendered-b", "desired": "rendered-b"}


async def test_a_cluster_without_the_kind_gets_one_request(
    cluster: Cluster, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube_node, "MACHINE_CONFIG_NODES", f"{MACHINE_CONFIG_NODES}-of-another-version")
    async with client_of(cluster) as client:
        writer = ControlledNodeConditions(client, node, SystemClock())
        assert await writer.publish(state(Phase.STAGING)) is None
        asked = client.requests
        for phase in PHASES:
            assert await writer.publish(state(phase)) is None
        assert client.requests == asked


@pytest.mark.finding(
    "cluster: states that could not be written", "A MachineConfigNode that appears later gets the state of the update."
)
async def test_an_object_that_the_controller_makes_later(cluster: Cluster, node: str) -> None:
    async with client_of(cluster) as client:
        writer = ControlledNodeConditions(client, node, SystemClock())
        assert await writer.publish(state(Phase.IDLE, "rendered-b")) == kube_node.SOON
        make_machine_config_node(cluster, node)
        assert await writer.publish(state(Phase.IDLE, "rendered-b")) is None
    assert there(cluster, node)["Updated"] == "True"


# As the machine-config-controller makes them, all of them False beside its own ones.
OF_CONTROLLER: Final = (
    "UpdatePrepared",
    "UpdateExecuted",
    "UpdatePostActionComplete",
    "UpdateComplete",
    "Resumed",
    "Drained",
    "AppliedFilesAndOS",
    "Cordoned",
    "RebootedNode",
    "Updated",
    "Uncordoned",
    "NodeDegraded",
    "PinnedImageSetsDegraded",
    "PinnedImageSetsProgressing",
)
# With the feature gate ImageModeStatusReporting.
WITH_GATE: Final = ("AppliedFiles", "AppliedOSImage", "ImagePulledFromRegistry")


def report_of_controller(cluster: Cluster, node: str, kinds: Sequence[str], **statuses: str) -> None:
    """Write conditions as the controller does: those that are missing are False, the others stay."""
    path = f"{MACHINE_CONFIG_NODES}/{node}"
    present = cluster.admin.get(path).get("status", {}).get("conditions", ())
    entries = {entry["type"]: entry for entry in present}
    for kind in kinds:
        if kind in statuses or kind not in entries:
            value, reason = statuses.get(kind, "False"), kind if kind in statuses else "NotYetOccurred"
            text = f"controller: {kind}" if kind in statuses else f"This node has not yet entered the {kind} phase"
            entries[kind] = {
                "type": kind,
                "status": value,
                "reason": reason,
                "message": text,
                "lastTransitionTime": "2026-11-24T00:00:00Z",
            }
    versions = {"desired": "rendered-b", "current": "rendered-a"}
    cluster.admin.patch(f"{path}/status", {"status": {"conditions": [*entries.values()], "configVersion": versions}})


@pytest.mark.finding(
    "cluster: states that could not be written", "A MachineConfigNode that appears later gets the state of the update."
)
@pytest.mark.parametrize("failing", [False, True], ids=["done", "failed"])
@pytest.mark.parametrize("kinds", [OF_CONTROLLER, OF_CONTROLLER + WITH_GATE], ids=["gate off", "gate on"])
async def test_the_controller_makes_the_object_at_the_first_drain(
    cluster: Cluster, node: str, kinds: Sequence[str], failing: bool
) -> None:
    """A restart without a reboot, by one process, on a node that never had a machine-config-daemon."""
    failure = {"reason": "JobFailed", "why": "restart app.service failed"}
    async with client_of(cluster) as client:
        writer = ControlledNodeConditions(client, node, SystemClock())
        for phase in (Phase.STAGING, Phase.LEASING, Phase.DRAINING):
            assert await writer.publish(state(phase)) == kube_node.SOON
        make_machine_config_node(cluster, node)
        report_of_controller(cluster, node, kinds, UpdateExecuted="Unknown", Drained="True")
        for phase in (Phase.WRITING, Phase.ACTING, Phase.VERIFYING):
            assert await writer.publish(state(phase, drained=True)) is None
        if failing:
            await writer.publish(state(Phase.DEGRADED, drained=True, **failure))
        else:
            await writer.publish(state(Phase.RELEASING, drained=True))
            report_of_controller(cluster, node, kinds, UpdateComplete="True", Uncordoned="True")
            await writer.publish(state(Phase.IDLE, "rendered-b"))
    status = cluster.admin.get(f"{MACHINE_CONFIG_NODES}/{node}")["status"]
    conditions = {entry["type"]: entry for entry in status["conditions"]}
    assert set(conditions) == set(kinds)
    if failing:
        assert conditions["Updated"]["status"] == "False"
        degraded = conditions["NodeDegraded"]
        assert (degraded["status"], degraded["reason"], degraded["message"]) == ("True", *failure.values())
    else:
        # The controller counts a node by this one, and a pool as updated by the count of its nodes.
        assert [kind for kind in kinds if conditions[kind]["status"] != "False"] == ["Updated"]
        assert status["configVersion"] == {"current": "rendered-b", "desired": "rendered-b"}


async def test_the_conditions_of_the_controller_are_not_lost(
    cluster: Cluster, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller writes between the read and the write of the agent."""
    make_machine_config_node(cluster, node)
    drained = {
        "type": "Drained",
        "status": "True",
        "reason": "UpdateExecutedDrained",
        "message": "by the controller",
        "lastTransitionTime": "2026-11-24T00:00:00Z",
    }
    async with client_of(cluster) as client:
        writes, read = [{"status": {"conditions": [drained]}}], client.get

        async def get(path: str, **query: str) -> Object:
            found = await read(path, **query)
            if writes and path == f"{MACHINE_CONFIG_NODES}/{node}":
                cluster.admin.patch(f"{path}/status", writes.pop())
            return found

        monkeypatch.setattr(client, "get", get)
        writer = ControlledNodeConditions(client, node, SystemClock())
        with pytest.raises(Conflict):
            await writer.publish(state(Phase.WRITING, drained=True))
        await writer.publish(state(Phase.WRITING, drained=True))
    entries = cluster.admin.get(f"{MACHINE_CONFIG_NODES}/{node}")["status"]["conditions"]
    assert [entry["message"] for entry in entries if entry["type"] == "Drained"] == ["by the controller"]
