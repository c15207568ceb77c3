# SPDX-License-Identifier: Apache-2.0
"""The units of `nodeagent bootstrap` on a real systemd host: it joins the cluster, and the daemon, which runs already,
takes its certificate without a restart."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from integration.cluster.cluster import Cluster
from integration.cluster.controller import Controller
from integration.cluster.tcp_proxy import INSIDE, listen_inside, relay
from integration.cluster.test_bootstrap import Joining, hurry, signing
from integration.cluster.test_installed import KUBECONFIG, until
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
from nodeagent.settings.schema import Settings

__all__ = [
    "agent_image",
    "hurry",
    "image",
    "make_host",
    "make_node",
    "package",
    "pytest_runtest_makereport",
    "say",
    "signing",
]

TIMER = "nodeagent-bootstrap.timer"
SERVICE = "nodeagent-bootstrap.service"
PREPARE = "nodeagent-bootstrap-prepare.service"
AUTHORITY = "/etc/nodeagent/ca.crt"


@pytest.fixture
def reachable(signing: Cluster, tmp_path: Path) -> Iterator[Path]:
    with relay(tmp_path, signing.port):
        yield tmp_path


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_host_joins(signing: Cluster, reachable: Path, make_node: HostMaker, tmp_path: Path) -> None:
    node = "joined"
    joining = Joining(signing, node, tmp_path, Settings())
    joining.bootstrap_token("b00001")
    source = json.loads((tmp_path / "bootstrap-kubeconfig").read_text())
    source["clusters"][0]["cluster"]["certificate-authority"] = AUTHORITY
    openssl = shutil.which("openssl")
    assert openssl is not None
    host: Host = make_node(
        settings={"node_name": node, "cluster": {"kubeconfig": KUBECONFIG, "source": "cluster"}},
        files={
            "/etc/nodeagent/bootstrap-kubeconfig": json.dumps(source),
            AUTHORITY: signing.authority.certificate.read_text(),
        },
        # The image of the hosts has the library without the program.
        read_only={INSIDE: reachable, "/usr/bin/openssl": Path(openssl)},
        boot=False,
    )
    listen_inside(host, signing.port)
    wants = host.root / "etc/systemd/system/timers.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / TIMER).symlink_to(f"/usr/lib/systemd/system/{TIMER}")
    with ThreadPoolExecutor(1) as beside:
        # On a slow host the request is made before the boot is complete, which it is not until the approval.
        approval = beside.submit(lambda: joining.decide(joining.wait_request()))
        host.boot()
        agent.wait_daemon(host)
        main = host.unit(agent.UNIT, "MainPID")["MainPID"]
        approval.result()
    signing.node(node)
    controller = Controller(signing, node)
    controller.make(config := f"rendered-{node}")
    controller.desire(config)
    until(lambda: controller.notes().get("currentConfig") == config, host, controller)
    assert host.unit(agent.UNIT, "MainPID")["MainPID"] == main
    assert host.unit(SERVICE, "Result")["Result"] == "success"
    modes = host.run(["stat", "--format=%a %U", KUBECONFIG, "/var/lib/nodeagent/client/client.pem"]).stdout
    assert modes.split("\n")[:2] == ["600 root"] * 2
    # A run without work, as the timer starts it.
    host.run(["systemctl", "start", SERVICE])
    assert len(joining.requests()) == 1
    assert "is renewed from" in host.run(["journalctl", "--unit", PREPARE, "--output", "cat"]).stdout
    # What nodeagent-bootstrap.service obtained is installed, so its copy of the key is gone.
    assert host.run(["ls", "/var/lib/private/nodeagent-bootstrap"]).stdout == ""
