# SPDX-License-Identifier: Apache-2.0
"""Updates of the configuration of a real containerd by key: without a policy of an admin."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from integration.cluster.cluster import Cluster
from integration.hosts import nodeagent_client as agent
from integration.hosts.errors import CommandFailed
from integration.hosts.node.conftest import NodeMaker
from integration.hosts.node.node_host import CONTAINERD_CONF, NodeHost
from integration.hosts.node.workloads import pod, workload
from integration.hosts.nodeagent_client import machine_config, wait_done

PODS = "/api/v1/namespaces/default/pods"
DROPIN = "/etc/containerd/conf.d/10.toml"
HOSTS = "/etc/containerd/certs.d/registry.example/hosts.toml"
CRI = '[plugins."io.containerd.grpc.v1.cri"]\n'
# An absolute pattern: a copy of the file with it would import the files of the host.
IMPORTS = 'imports = ["/etc/containerd/conf.d/*.toml"]\n'


def with_a_pod(make_agent_node: NodeMaker, cluster: Cluster, name: str) -> tuple[NodeHost, dict[str, str]]:
    node = make_agent_node(name)
    cluster.admin.create(PODS, pod(f"{name}-web", workload(serve=True, nodeName=name)))
    node.wait_pods_ready(f"{name}-web")
    return node, node.container_ids()


def listens(node: NodeHost, port: int) -> bool:
    return node.run(["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port}"], check=False).returncode == 0


def run_of(node: NodeHost) -> Mapping[str, str]:
    return node.unit("containerd.service", "InvocationID")


def test_keys_of_containerd(make_agent_node: NodeMaker, control_plane: Cluster) -> None:
    node, before = with_a_pod(make_agent_node, control_plane, "containerd-keys")
    original = node.read_text(CONTAINERD_CONF)
    main = IMPORTS + original
    # A file that no config manages, and that the pattern matches.
    node.write("/etc/containerd/conf.d/.10.toml", "")

    def apply(name: str, dropin: str, **more: str) -> None:
        agent.apply(node, machine_config(name, files={CONTAINERD_CONF: main, DROPIN: dropin, **more}))

    # What a restart takes, in the main file and in an import: the containers go on.
    started = run_of(node)
    assert not listens(node, 11338)
    apply("metrics", '[metrics]\naddress = "127.0.0.1:11338"\n')
    wait_done(node, "metrics")
    assert run_of(node) != started
    assert listens(node, 11338)
    assert "/etc/containerd/conf.d/.10.toml is read by containerd" in agent.history(node)[0]["message"]
    started = run_of(node)
    main = main.replace(CRI, f'{CRI}stream_server_port = "11010"\n')
    apply("stream", '[metrics]\naddress = "127.0.0.1:11339"\n')
    wait_done(node, "stream")
    assert run_of(node) != started
    assert listens(node, 11010)
    assert listens(node, 11339)
    # Text without a meaning, and what containerd reads at each pull.
    started = run_of(node)
    metrics = '# the same\n[metrics]\naddress = "127.0.0.1:11339"\n'
    apply("pulls", metrics, **{HOSTS: 'server = "https://registry.example"\n'})
    wait_done(node, "pulls")
    assert run_of(node) == started
    assert node.is_ready()
    assert node.container_ids() == before

    # A section of a plugin that containerd cannot decode is refused before the first byte, also in an import.
    for name, file, dropin in (
        ("bad-main", main.replace(CRI, f'{CRI}max_container_log_line_size = "many"\n'), metrics),
        ("bad-import", main, f'{metrics}{CRI}max_container_log_line_size = "many"\n'),
    ):
        with pytest.raises(CommandFailed, match="containerd rejects"):
            agent.apply(node, machine_config(name, files={CONTAINERD_CONF: file, DROPIN: dropin}))
    assert node.read_text(DROPIN) == metrics

    # One with which the plugin fails: containerd runs, the state of the plugin does not.
    bad = main.replace(
        "  [plugins",
        '  [plugins."io.containerd.grpc.v1.cri".containerd]\n    default_runtime_name = "no"\n\n  [plugins',
        1,
    )
    agent.apply(node, machine_config("bad-plugin", files={CONTAINERD_CONF: bad, DROPIN: metrics}))
    entry = agent.wait_outcome(node, "bad-plugin")
    assert (entry["outcome"], entry["reason"]) == ("reverted", "UnitUnhealthy")
    assert "io.containerd.grpc.v1.cri" in entry["message"]
    assert node.read_text(CONTAINERD_CONF) == main
    node.wait_ready()
    assert node.container_ids() == before
    assert node.reboots == 0


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_runtime_without_a_network_is_reverted_and_not_booted(
    make_agent_node: NodeMaker, control_plane: Cluster
) -> None:
    """Every plugin works and the kubelet runs, but the Node is not ready. A boot starts both with the same files."""
    node, before = with_a_pod(make_agent_node, control_plane, "containerd-cni")
    config = node.read_text(CONTAINERD_CONF)
    agent.apply(node, machine_config("first", files={CONTAINERD_CONF: config}))
    wait_done(node, "first")
    bad = config.replace('bin_dir = "/usr/lib/cni"', 'bin_dir = "/usr/lib/cni"\n    conf_dir = "/etc/cni/none"')
    agent.apply(node, machine_config("second", files={CONTAINERD_CONF: bad}))
    entry = agent.wait_outcome(node, "second", 400)
    assert (entry["outcome"], entry["reason"]) == ("reverted", "NodeNotReady")
    assert node.read_text(CONTAINERD_CONF) == config
    assert node.is_ready()
    assert node.container_ids() == before
    assert node.reboots == 0
