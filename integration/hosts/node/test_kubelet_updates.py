"""Updates of the configuration of a real kubelet by key: without a policy of an admin."""

from __future__ import annotations

import json
from typing import Any

import pytest

from integration.cluster.cluster import Cluster
from integration.hosts import nodeagent_client as agent
from integration.hosts.errors import CommandFailed
from integration.hosts.node.conftest import NodeMaker
from integration.hosts.node.node_host import KUBELET_CONF, NodeHost, kubelet_configuration
from integration.hosts.node.workloads import pod, workload
from integration.hosts.nodeagent_client import machine_config, wait_done

PODS = "/api/v1/namespaces/default/pods"
STATE = "/var/lib/kubelet/cpu_manager_state"
RESERVED = {"systemReserved": {"cpu": "100m", "memory": "100Mi"}}


def apply(node: NodeHost, name: str, **keys: Any) -> None:
    agent.apply(node, machine_config(name, files={KUBELET_CONF: kubelet_configuration(**keys)}))


def policy_of_state(node: NodeHost) -> str:
    return str(json.loads(node.read_text(STATE))["policyName"])


def test_keys_of_a_kubelet(make_agent_node: NodeMaker, control_plane: Cluster) -> None:
    node = make_agent_node("keys")
    control_plane.admin.create(PODS, pod("keys-web", workload(serve=True, nodeName="keys")))
    node.wait_pods_ready("keys-web")
    before = node.container_ids()

    # More pods: a restart, and the containers go on.
    apply(node, "more-pods", maxPods=200)
    wait_done(node, "more-pods", 90)
    assert control_plane.admin.get(node.path)["status"]["capacity"]["pods"] == "200"
    # A flag of the unit overrides the log level.
    started = node.unit("kubelet.service", "InvocationID")
    apply(node, "verbose", maxPods=200, logging={"verbosity": 4})
    wait_done(node, "verbose", 90)
    assert node.unit("kubelet.service", "InvocationID") == started

    # The kubelet of the host refuses, or would ignore, these: nothing is written.
    for name, keys, word in (
        ("unknown", {"noSuchKey": 1}, "noSuchKey"),
        ("gate", {"featureGates": {"NoSuchGate": True}}, "NoSuchGate"),
        ("beyond", {"systemReserved": {"cpu": "4000"}}, "4000"),
    ):
        with pytest.raises(CommandFailed, match=word):
            apply(node, name, maxPods=200, **keys)
    assert json.loads(node.read_text(KUBELET_CONF))["maxPods"] == 200
    assert node.container_ids() == before

    # Another policy of the CPU manager: the state of the old one goes away behind a drain.
    assert policy_of_state(node) == "none"
    apply(node, "static", maxPods=200, cpuManagerPolicy="static", **RESERVED)
    wait_done(node, "static", 120)
    assert policy_of_state(node) == "static"
    assert "keys-web" not in node.container_ids()

    # A configuration that passes all checks, with which the kubelet ends: back without a reboot.
    wrong = [{"numaNode": 0, "limits": {"memory": "1Mi"}}]
    apply(node, "bad", cpuManagerPolicy="static", memoryManagerPolicy="Static", reservedMemory=wrong, **RESERVED)
    entry = agent.wait_outcome(node, "bad", 120)
    assert entry["outcome"] == "reverted"
    assert node.is_ready()
    assert policy_of_state(node) == "static"
    assert node.reboots == 0
