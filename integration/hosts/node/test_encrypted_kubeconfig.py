# SPDX-License-Identifier: Apache-2.0
"""The units of docs/usage/encrypt-credentials.md on a real systemd host, with the key of the host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.cluster.cluster import Cluster
from integration.cluster.controller import Controller
from integration.cluster.tcp_proxy import INSIDE, listen_inside, relay
from integration.cluster.test_installed import kubeconfig, until
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

__all__ = ["agent_image", "image", "make_host", "make_node", "package", "pytest_runtest_makereport", "say"]

PAGE = Path(__file__).parents[3] / "docs/usage/encrypt-credentials.md"
CREDENTIAL = "/etc/nodeagent/kubeconfig.cred"
DROP_IN = f"[Service]\nLoadCredentialEncrypted=kubeconfig:{CREDENTIAL}\n"
OF_THE_UNIT = "/run/credentials/nodeagent.service/kubeconfig"
# An API server may take a client without credentials for the anonymous one.
REFUSED = re.compile("KubeUnauthorized|KubeForbidden")
PLAIN = "/run/nodeagent-kubeconfig/kubeconfig"


def snippets() -> dict[str, str]:
    """Return the files of the page by their paths."""
    found = {}
    for block in re.findall(r"(?:^    .*\n)+", PAGE.read_text(), re.MULTILINE):
        first, _, rest = block.replace("    ", "", 1).replace("\n    ", "\n").partition("\n")
        if first.startswith("# /"):
            found[first.removeprefix("# ")] = rest
    return found


def journal(host: Host) -> str:
    return host.run(["journalctl", "--unit", agent.UNIT, "--output", "json"]).stdout


def encrypt(host: Host, text: str) -> None:
    host.write("/run/plain", text)
    host.run(["systemd-creds", "encrypt", "--with-key=host", "--name=kubeconfig", "/run/plain", CREDENTIAL])
    host.run(["rm", "/run/plain"])


@pytest.fixture
def reachable(installed: Cluster, tmp_path: Path) -> Iterator[Path]:
    with relay(tmp_path, installed.port):
        yield tmp_path


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)
def test_an_encrypted_kubeconfig_is_rotated_without_a_restart(
    installed: Cluster, reachable: Path, make_node: HostMaker
) -> None:
    node = "encrypted"
    installed.node(node)
    controller = Controller(installed, node)
    configs = [f"rendered-{node}-{number}" for number in range(3)]
    for number, config in enumerate(configs):
        controller.make(config, one=str(number))
    controller.desire(configs[0])
    files = snippets()
    assert len(files) == 4
    policy = agent.policy(files={"/etc/one": ["None"]})
    host: Host = make_node(
        settings={"node_name": node, "cluster": {"source": "cluster"}},
        files={**files, agent.POLICY: policy},
        read_only={INSIDE: reachable},
        boot=False,
    )
    listen_inside(host, installed.port)
    host.boot()
    agent.wait_daemon(host)
    # Without a credential the agent runs, and has no cluster.
    assert host.run(["test", "-e", PLAIN], check=False).returncode != 0
    main = host.unit(agent.UNIT, "MainPID")["MainPID"]
    good = kubeconfig(installed, node)
    encrypt(host, good)
    assert "client-key-data" not in host.run(["cat", CREDENTIAL]).stdout
    until(lambda: controller.notes().get("currentConfig") == configs[0], host, controller)
    assert host.run(["stat", "--format=%a %U", PLAIN]).stdout.split("\n")[0] == "600 root"
    # Credentials of another cluster, then those of this one again.
    encrypt(host, good.replace("client-certificate-data", "x").replace("client-key-data", "y"))
    until(lambda: REFUSED.search(journal(host)) is not None, host, controller)
    encrypt(host, good)
    controller.desire(configs[1])
    until(lambda: controller.notes().get("currentConfig") == configs[1], host, controller)
    assert host.unit(agent.UNIT, "MainPID")["MainPID"] == main
    # Without the units: a credential of the daemon itself, for each of its starts.
    host.run(["systemctl", "stop", "nodeagent-kubeconfig.path"])
    host.run(["rm", "--recursive", f"/etc/systemd/system/{agent.UNIT}.d", Path(PLAIN).parent.as_posix()])
    host.write(f"/etc/systemd/system/{agent.UNIT}.d/50-credential.conf", DROP_IN)
    host.write("/etc/nodeagent/config.d/60-kubeconfig.yaml", f"cluster: {{kubeconfig: {OF_THE_UNIT}}}\n")
    host.run(["systemctl", "daemon-reload"])
    host.run(["systemctl", "restart", agent.UNIT])
    agent.wait_daemon(host)
    controller.desire(configs[2])
    until(lambda: controller.notes().get("currentConfig") == configs[2], host, controller)
