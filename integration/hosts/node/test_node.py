# SPDX-License-Identifier: Apache-2.0
"""The node of the tests itself: Ready after the boot, it runs pods, and they outlive its kubelet."""

from __future__ import annotations

import time

from integration.cluster.cluster import Cluster
from integration.hosts.node.conftest import NodeMaker
from integration.hosts.node.workloads import pod, workload

PODS = "/api/v1/namespaces/default/pods"
SOON = 30.0  # seconds on a busy machine; one or two on an idle one


def test_a_node_is_ready_and_its_pods_outlive_the_kubelet(make_node: NodeMaker, control_plane: Cluster) -> None:
    node = make_node("plain")
    node.boot()
    booted = time.monotonic()
    node.wait_ready(SOON)
    print(f"Ready {time.monotonic() - booted:.1f} s after the boot")
    version = control_plane.admin.get(node.path)["status"]["nodeInfo"]["kubeletVersion"]
    assert version == "v1.36.3"
    control_plane.admin.create(PODS, pod("in-bridge", workload(serve=True, nodeName="plain")))
    control_plane.admin.create(PODS, pod("in-host", workload(hostNetwork=True, nodeName="plain")))
    node.wait_pods_ready("in-bridge", "in-host", timeout=SOON)
    before = node.container_ids()
    assert set(before) == {"in-bridge", "in-host"}
    node.run(["systemctl", "restart", "kubelet.service"])
    node.wait_ready(SOON)
    node.wait_pods_ready("in-bridge", "in-host", timeout=SOON)
    assert node.container_ids() == before
    node.delete_pods()
    assert node.container_ids() == {}
