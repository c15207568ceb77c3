# SPDX-License-Identifier: Apache-2.0
"""Updates of the kubelet and of containerd by nodeagent under running pods, and an update that breaks the node."""

from __future__ import annotations

import pytest

from integration.cluster.cluster import SLOT_PATH, Cluster
from integration.hosts import nodeagent_client as agent
from integration.hosts.node.conftest import NodeMaker
from integration.hosts.node.node_host import (
    CONTAINERD_CONF,
    KUBELET_CONF,
    POD_NETWORK,
    NodeHost,
    kubelet_configuration,
)
from integration.hosts.node.workloads import pod, workload
from integration.hosts.nodeagent_client import machine_config, wait_done

PODS = "/api/v1/namespaces/default/pods"
POLICY = agent.policy(
    files={
        KUBELET_CONF: ["Restart kubelet.service"],
        CONTAINERD_CONF: ["Restart containerd.service"],
        POD_NETWORK: ["Restart containerd.service"],
    }
)
SLOTS = {"slots": {"pool": "nodes", "max_unavailable": 1}}


def with_pods(make_agent_node: NodeMaker, cluster: Cluster, name: str) -> tuple[NodeHost, dict[str, str]]:
    """A node that runs two pods, and the ids of their containers."""
    node = make_agent_node(name, SLOTS)
    node.write(agent.POLICY, POLICY)
    for pod_name, spec in (("web", workload(serve=True)), ("host", workload(hostNetwork=True))):
        cluster.admin.create(PODS, pod(f"{name}-{pod_name}", {**spec, "nodeName": name}))
    node.wait_pods_ready(f"{name}-web", f"{name}-host")
    return node, node.container_ids()


def slots(cluster: Cluster) -> list[str]:
    return [lease["metadata"]["name"] for lease in cluster.admin.get(SLOT_PATH)["items"]]


def test_pods_outlive_updates_of_the_kubelet_and_of_containerd(
    make_agent_node: NodeMaker, control_plane: Cluster
) -> None:
    node, before = with_pods(make_agent_node, control_plane, "restarts")
    files = {KUBELET_CONF: kubelet_configuration(maxPods=42)}
    agent.apply(node, machine_config("pods-42", files=files))
    wait_done(node, "pods-42")
    assert node.is_ready()
    assert control_plane.admin.get(node.path)["status"]["capacity"]["pods"] == "42"
    assert node.container_ids() == before

    files[CONTAINERD_CONF] = node.read_text(CONTAINERD_CONF) + "\n[debug]\n  level = 'info'\n"
    started = node.unit("containerd.service", "InvocationID")
    agent.apply(node, machine_config("containerd", files=files))
    wait_done(node, "containerd")
    assert node.unit("containerd.service", "InvocationID") != started
    assert node.is_ready()
    assert node.container_ids() == before
    assert slots(control_plane) == []
    assert node.reboots == 0


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_config_without_a_pod_network_is_reverted_although_every_unit_runs(
    make_agent_node: NodeMaker, control_plane: Cluster
) -> None:
    node, before = with_pods(make_agent_node, control_plane, "networkless")
    network = node.read_text(POD_NETWORK)
    agent.apply(node, machine_config("first", files={POD_NETWORK: network}))
    wait_done(node, "first")
    assert node.container_ids() == before
    agent.settings(
        node,
        {
            "node_name": "networkless",
            "cluster": {"kubeconfig": "/etc/nodeagent/kubeconfig"},
            "reboot": {"allow": False},
            **SLOTS,
        },
    )
    node.run(["systemctl", "restart", agent.UNIT])
    agent.wait_daemon(node)
    # A network without plugins is none: containerd reports that, and the kubelet takes the Node out of service.
    agent.apply(node, machine_config("second", files={POD_NETWORK: "{}"}))
    entry = agent.wait_outcome(node, "second", 400)
    assert (entry["outcome"], entry["reason"]) == ("reverted", "NodeNotReady")
    assert node.read_text(POD_NETWORK) == network
    assert node.is_ready()
    assert node.container_ids() == before
    assert slots(control_plane) == []
