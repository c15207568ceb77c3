# SPDX-License-Identifier: Apache-2.0
"""The daemon as it is installed, on a real systemd host, driven by a machine-config-controller on a real API server,
with exactly the rights of packaging/kubernetes."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.cluster.cluster import Cluster
from integration.cluster.controller import Controller
from integration.cluster.tcp_proxy import INSIDE, listen_inside, relay
from integration.cluster.test_rights import installed
from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import (
    HostMaker,
    agent_image,
    image,
    make_host,
    make_node,
    package,
    pytest_runtest_makereport,
    say,
)
from integration.hosts.container.container_host import Host

__all__ = ["agent_image", "image", "installed", "make_host", "make_node", "package", "pytest_runtest_makereport", "say"]

LATE = 400.0  # seconds: a Node is read every half a minute, a drain looked at every ten seconds, and a host boots
KUBECONFIG = "/etc/nodeagent/kubeconfig"


@pytest.fixture
def reachable(installed: Cluster, tmp_path: Path) -> Iterator[Path]:
    with relay(tmp_path, installed.port):
        yield tmp_path


def kubeconfig(cluster: Cluster, node: str) -> str:
    """With everything in it: the host does not see the files of this machine."""
    document: dict[str, Any] = json.loads(cluster.kubeconfig(f"nodeagent:{node}", ["nodeagent"]).read_text())
    for part in (document["clusters"][0]["cluster"], document["users"][0]["user"]):
        for key in ("certificate-authority", "client-certificate", "client-key"):
            if key in part:
                part[f"{key}-data"] = base64.b64encode(Path(part.pop(key)).read_bytes()).decode()
    return json.dumps(document)


def until(true: Callable[[], bool], host: Host, controller: Controller) -> None:
    """While the controller does its work."""
    deadline = time.monotonic() + LATE
    while not true():
        assert time.monotonic() < deadline, (controller.notes(), agent.status(host))
        controller.look()
        time.sleep(0.5)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_controller_drives_the_installed_daemon_through_a_reboot(
    installed: Cluster, reachable: Path, make_node: HostMaker
) -> None:
    node = "installed"  # `make_node` is that of the hosts here
    installed.node(node)
    first, second = f"rendered-{node}-1", f"rendered-{node}-2"
    controller = Controller(installed, node)
    controller.make(first, one="1")
    controller.make(second, one="2")  # no entry of the policy: drain and reboot
    controller.annotate(desiredConfig=first, lastAppliedDrain="uncordon-x", desiredDrain="uncordon-x")
    cluster = {"kubeconfig": KUBECONFIG, "source": "cluster"}
    host: Host = make_node(
        settings={"node_name": node, "cluster": cluster},
        files={KUBECONFIG: kubeconfig(installed, node), "/etc/one": "1"},
        read_only={INSIDE: reachable},
        boot=False,
    )
    listen_inside(host, installed.port)
    host.boot()
    agent.wait_daemon(host)
    until(lambda: controller.notes().get("currentConfig") == first, host, controller)
    assert host.reboots == 0, "nothing is rebooted because nodeagent is new"
    pod = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]}
    installed.admin.create("/api/v1/namespaces/default/pods", {"metadata": {"name": node}, "spec": pod})
    with host.rebooting(LATE):
        controller.desire(second)
        until(lambda: controller.notes().get("lastAppliedDrain") == f"drain-{second}", host, controller)
        until(lambda: controller.notes()["state"] == "Working", host, controller)
        assert installed.admin.find(f"/api/v1/namespaces/default/pods/{node}") is None
    agent.wait_daemon(host)
    assert controller.node()["spec"]["unschedulable"], "it stays so until the host was verified"
    until(lambda: controller.notes()["state"] == "Done", host, controller)
    notes = controller.notes()
    assert (notes["currentConfig"], notes["lastAppliedDrain"]) == (second, f"uncordon-{second}")
    assert not controller.node()["spec"].get("unschedulable")
    assert (host.reboots, host.read_text("/etc/one")) == (1, "2")
    assert agent.status(host)["lease"] is None
