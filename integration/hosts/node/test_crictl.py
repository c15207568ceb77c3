# SPDX-License-Identifier: Apache-2.0
"""The real crictl: a witness of which containers run, independent of nodeagent and of ctr, and as nodeagent uses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.cluster import programs as program_cache
from integration.cluster.cluster import Cluster
from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import required
from integration.hosts.node.conftest import NodeMaker
from integration.hosts.node.node_host import CONTAINERD_CONF, KUBELET_CONF, NodeHost, kubelet_configuration
from integration.hosts.node.node_programs import ETCD_NEXT
from integration.hosts.node.test_restarts import with_pods
from integration.hosts.node.test_static_pods import PATH, is_ready, manifest, node, uids
from integration.hosts.nodeagent_client import machine_config, wait_done, wait_outcome

__all__ = ["node"]  # a fixture

CRICTL = "/usr/local/bin/crictl"
ABSENT = "localhost/etcd:absent"


@pytest.fixture(scope="session")
def crictl() -> Path:
    """`make node-tools` builds it."""
    return required(lambda: program_cache.CRICTL_MODULE.find("crictl"), "there is no crictl here")


def install(host: NodeHost, crictl: Path) -> None:
    host.write("/etc/crictl.yaml", "runtime-endpoint: unix:///run/containerd/containerd.sock\n")
    host.write(CRICTL, crictl.read_bytes(), mode=0o755)


def running(host: NodeHost, *filters: str) -> set[str]:
    return set(host.run([CRICTL, "ps", "--quiet", "--no-trunc", *filters]).stdout.split())


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_same_containers_run_after_updates(
    make_agent_node: NodeMaker, control_plane: Cluster, crictl: Path
) -> None:
    host, ids = with_pods(make_agent_node, control_plane, "witnessed")
    install(host, crictl)
    before = running(host)
    assert before == set(ids.values())
    assert len(before) == 2
    files = {
        KUBELET_CONF: kubelet_configuration(maxPods=42),
        CONTAINERD_CONF: host.read_text(CONTAINERD_CONF) + "\n[debug]\n  level = 'info'\n",
    }
    agent.apply(host, machine_config("both", files=files))
    wait_done(host, "both")
    assert running(host) == before


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_nodeagent_replaces_a_static_pod_with_it(node: NodeHost, crictl: Path) -> None:
    install(node, crictl)
    (old,) = uids(node)
    label = "io.kubernetes.pod.uid"
    before = running(node, "--label", f"{label}={old}")
    assert len(before) == 1

    # An image that is not there and cannot be pulled: the pod is not touched.
    agent.apply(node, machine_config("absent", files={PATH: manifest(image=ABSENT)}))
    entry = wait_outcome(node, "absent", 400)
    assert (entry["outcome"], entry["reason"], entry["reboots"]) == ("reverted", "StaticPodImage", 0)
    assert running(node, "--label", f"{label}={old}") == before
    assert ABSENT not in node.read_text(PATH)

    agent.apply(node, machine_config("next", files={PATH: manifest(image=ETCD_NEXT)}))
    wait_done(node, "next")
    (new,) = uids(node)
    assert new != old
    assert running(node, "--label", f"{label}={old}") == set()
    assert len(running(node, "--label", f"{label}={new}") - before) == 1
    assert is_ready(node)
