# SPDX-License-Identifier: Apache-2.0
"""A directory of MachineConfigs as the desired config of a real host, and an Ignition config as it is."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import machine_config, wait_daemon

CONFIGS = "/srv/site/configs"
SITE = "/etc/site"
POLICY = agent.policy(files={SITE: ["None"]}, units={"site.service": ["None"]})
MERGED = "/var/lib/nodeagent/desired.json"


def put(host: Host, file: str, name: str, **files: str) -> None:
    """Write a MachineConfig of the pool worker, which only root can read."""
    document = json.loads(machine_config(name, files={f"{SITE}/{key}": text for key, text in files.items()}))
    document["metadata"]["labels"] = {"machineconfiguration.openshift.io/role": "worker"}
    host.write(f"{CONFIGS}/{file}", json.dumps(document), mode=0o600)


def site(host: Host) -> dict[str, str]:
    names = host.run(["sh", "-c", f"ls {SITE} 2>/dev/null || true"]).stdout.split()
    return {name: host.read_text(f"{SITE}/{name}") for name in names}


def wait_site(host: Host, **files: str) -> None:
    """Wait until the host has exactly these files, and is at rest."""
    host.wait_for(lambda: site(host) == files, f"the files are {files}")
    host.wait_for(lambda: agent.status(host)["phase"] == "Idle", "it is at rest")


def problems(host: Host) -> list[str]:
    return [problem["reason"] for problem in agent.status(host)["problems"]]


@pytest.fixture
def node(make_node: HostMaker) -> Host:
    """The directory does not exist yet."""
    return make_node(settings={"desired_config": CONFIGS}, files={agent.POLICY: POLICY})


@pytest.mark.long
def test_a_directory_is_followed(node: Host) -> None:
    put(node, "b.json", "99-site", a="from 99", c="c")
    put(node, "a.json", "50-base", a="from 50", b="b")
    put(node, "host.d/own.json", "00-host", b="own")
    wait_site(node, a="from 99", b="own", c="c")
    # Which of them an entry comes from.
    explained = json.loads(node.run(["nodeagent", "explain", f"{SITE}/a", "--json"]).stdout)
    assert explained["from"] == ["50-base", "99-site"]
    assert "from 50-base, 00-host" in " ".join(node.run(["nodeagent", "history", "show"]).stdout.split())
    # A user who may not read them gets the rest of both answers.
    checked = node.execute(["nodeagent", "settings", "check"], user="core", check=False).stdout.decode()
    assert f"desired config {CONFIGS}: only root may read it" in checked
    assert json.loads(node.execute(["nodeagent", "explain", f"{SITE}/a", "--json"], user="core").stdout)["from"] == []
    # One is added; one that is broken changes nothing until it has left.
    put(node, "c.json", "60-more", d="d")
    wait_site(node, a="from 99", b="own", c="c", d="d")
    ended = agent.outcomes(node)
    node.write(f"{CONFIGS}/broken.yaml", "{}", mode=0o600)
    put(node, "c.json", "60-more", d="d2")
    node.wait_for(lambda: "FragmentsInvalid" in problems(node), "the status names the broken one")
    node.kill(agent.UNIT)
    wait_daemon(node)
    node.wait_for(lambda: "FragmentsInvalid" in problems(node), "the status names it after a restart, too")
    assert (agent.outcomes(node), site(node)["d"]) == (ended, "d")
    node.run(["rm", f"{CONFIGS}/broken.yaml"])
    wait_site(node, a="from 99", b="own", c="c", d="d2")
    assert problems(node) == []
    # They leave, and what they had leaves with them.
    node.run(["rm", f"{CONFIGS}/c.json", f"{CONFIGS}/host.d/own.json"])
    wait_site(node, a="from 99", b="b", c="c")
    assert node.reboots == 0


def wait_merged(host: Host, before: bytes) -> None:
    host.wait_for(lambda: host.read(MERGED) != before, "it is merged", every=0.01)


@pytest.mark.long
def test_killed_while_the_directory_is_merged(node: Host) -> None:
    """Whenever the daemon dies, the next one has the config of the directory, and no update runs twice."""
    put(node, "a.json", "50-base", a="0")
    wait_site(node, a="0")
    for number in range(1, 4):
        before = node.read(MERGED)
        put(node, "a.json", "50-base", a=str(number))
        wait_merged(node, before)
        node.kill(agent.UNIT)
        wait_daemon(node)
        wait_site(node, a=str(number))
    # Killed before the five seconds are over.
    put(node, "a.json", "50-base", a="last")
    node.kill(agent.UNIT)
    wait_daemon(node)
    wait_site(node, a="last")
    ended = agent.outcomes(node)
    assert [outcome for _, outcome in ended] == ["done"] * 5
    with node.rebooting():
        node.run(["systemctl", "reboot"])
    wait_daemon(node)
    wait_site(node, a="last")
    assert agent.outcomes(node) == ended


UNIT = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"


def ignition(*, of_ignition: bool = True, old: bool = True) -> str:
    """What provisioned the host, or a later edition of it."""

    def file(path: str, text: str) -> dict[str, Any]:
        return {"path": path, "contents": {"source": f"data:;base64,{base64.b64encode(text.encode()).decode()}"}}

    files = [*([file(f"{SITE}/of-ignition", "1")] if of_ignition else []), *([file(f"{SITE}/old", "2")] if old else [])]
    units = [{"name": "site.service", "enabled": True, "contents": UNIT}] if of_ignition else []
    return json.dumps(
        {
            "ignition": {"version": "3.5.0"},
            "storage": {"files": files, "disks": [{"device": "/dev/vda", "partitions": [{"label": "data"}]}]},
            "passwd": {"users": [{"name": "core", "groups": ["wheel"]}, {"name": "builder"}]},
            "systemd": {"units": units},
        }
    )


@pytest.mark.long
def test_the_ignition_config_of_a_host(make_node: HostMaker) -> None:
    """The host that was provisioned with it has it all; what leaves a later edition leaves the host."""
    node = make_node(files={agent.POLICY: POLICY, f"{SITE}/of-ignition": "1", f"{SITE}/old": "of the OS"})
    node.write("/etc/systemd/system/site.service", UNIT)
    node.run(["systemctl", "daemon-reload"])
    node.run(["systemctl", "enable", "--now", "site.service"])
    started = node.unit("site.service", "InvocationID")
    before = agent.managed(node)

    def apply(text: str) -> str:
        node.write("/root/host.ign", text)
        return node.run(["nodeagent", "apply", "--yes", "--wait", "/root/host.ign"], timeout=agent.DONE_TIMEOUT).stdout

    apply(ignition())
    assert site(node) == {"of-ignition": "1", "old": "2"}
    changed = {path for path, entry in agent.managed(node).items() if before.get(path) != entry}
    assert f"{SITE}/old" in changed
    assert not changed & {f"{SITE}/of-ignition", "/etc/systemd/system/site.service"}
    assert node.unit("site.service", "InvocationID") == started
    apply(ignition(of_ignition=False, old=False))
    assert site(node) == {"old": "of the OS"}
    assert not node.is_active("site.service")
    # A part that is for the first boot only is refused when it changes.
    node.write("/root/host.ign", ignition().replace('"label": "data"', '"label": "other"'))
    refused = node.run(["nodeagent", "apply", "--yes", "/root/host.ign"], check=False)
    assert refused.returncode == 3, refused.stderr
    assert "storage.disks[/dev/vda]" in refused.stderr
    assert [outcome for _, outcome in agent.outcomes(node)] == ["done", "done"]
    assert node.reboots == 0
