# SPDX-License-Identifier: Apache-2.0
"""Updates of the configuration of a real kubelet by key: without a policy of an admin."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from integration.cluster.cluster import Cluster
from integration.hosts import nodeagent_client as agent
from integration.hosts.errors import CommandFailed
from integration.hosts.node.conftest import NodeMaker
from integration.hosts.node.node_host import KUBELET_CONF, NodeHost, kubelet_configuration
from integration.hosts.node.workloads import pod, workload
from integration.hosts.nodeagent_client import machine_config, wait_done
from nodeagent.core.validate.quantity import parse_quantity

PODS = "/api/v1/namespaces/default/pods"
STATE = "/var/lib/kubelet/cpu_manager_state"
MEMORY_STATE = "/var/lib/kubelet/memory_manager_state"
STATIC_MEMORY = {"memoryManagerPolicy": "Static", "systemReserved": {"memory": "100Mi"}}
RESERVED = {"systemReserved": {"cpu": "100m", "memory": "100Mi"}}


def apply(node: NodeHost, name: str, **keys: Any) -> None:
    agent.apply(node, machine_config(name, files={KUBELET_CONF: kubelet_configuration(**keys)}))


def size(quantity: str) -> Decimal:
    found = parse_quantity(quantity)
    assert found is not None
    return found


def policy_of_state(node: NodeHost, state: str = STATE) -> str:
    return str(json.loads(node.read_text(state))["policyName"])


def test_keys_of_a_kubelet(make_agent_node: NodeMaker, control_plane: Cluster) -> None:
    node = make_agent_node("keys")
    control_plane.admin.create(PODS, pod("keys-web", workload(serve=True, nodeName="keys")))
    node.wait_pods_ready("keys-web")
    before = node.container_ids()

    # More pods: a restart, and the containers go on.
    apply(node, "more-pods", maxPods=200)
    wait_done(node, "more-pods")
    assert control_plane.admin.get(node.path)["status"]["capacity"]["pods"] == "200"
    # A flag of the unit overrides the log level.
    started = node.unit("kubelet.service", "InvocationID")
    apply(node, "verbose", maxPods=200, logging={"verbosity": 4})
    wait_done(node, "verbose")
    assert node.unit("kubelet.service", "InvocationID") == started

    # The kubelet of the host refuses, or would ignore, these: nothing is written.
    for name, keys, word in (
        ("unknown", {"noSuchKey": 1}, "noSuchKey"),
        ("gate", {"featureGates": {"NoSuchGate": True}}, "NoSuchGate"),
        ("beyond", {"systemReserved": {"cpu": "4000"}}, "4000"),
        ("memory", {**STATIC_MEMORY, "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Mi"}}]}, "104857600"),
    ):
        with pytest.raises(CommandFailed, match=word):
            apply(node, name, maxPods=200, **keys)
    assert json.loads(node.read_text(KUBELET_CONF))["maxPods"] == 200
    assert node.container_ids() == before

    # The Node keeps back what is reserved now.
    apply(node, "reserved", maxPods=200, systemReserved={"cpu": "300m", "memory": "64Mi"})
    wait_done(node, "reserved")
    status = control_plane.admin.get(node.path)["status"]
    kept = {name: size(status["capacity"][name]) - size(status["allocatable"][name]) for name in ("cpu", "memory")}
    assert kept == {"cpu": Decimal("0.3"), "memory": 64 << 20}

    # Another policy of the CPU manager: the state of the old one goes away behind a drain.
    assert policy_of_state(node) == "none"
    apply(node, "static", maxPods=200, cpuManagerPolicy="static", **RESERVED)
    wait_done(node, "static")
    assert policy_of_state(node) == "static"
    assert "keys-web" not in node.container_ids()

    # The static memory policy, with exactly what the other keys keep back.
    memory = {
        "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "110Mi"}}],
        "evictionHard": {"memory.available": "10Mi"},
    }
    apply(node, "memory", maxPods=200, cpuManagerPolicy="static", **memory, **RESERVED)
    wait_done(node, "memory")
    assert policy_of_state(node, MEMORY_STATE) == "Static"

    # A configuration that passes all checks, with which the kubelet ends: back without a reboot.
    apply(node, "bad", maxPods=200, cpuManagerPolicy="static", port=control_plane.port, **memory, **RESERVED)
    entry = agent.wait_outcome(node, "bad")
    assert (entry["outcome"], entry["reason"]) == ("reverted", "UnitUnhealthy")
    assert node.is_ready()
    assert policy_of_state(node) == "static"
    assert node.reboots == 0
