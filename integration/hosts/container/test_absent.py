# SPDX-License-Identifier: Apache-2.0
"""A boot without an agent in the middle of an update: the host itself reports what is held and how to continue."""

from __future__ import annotations

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import machine_config, wait_done

UNIT = "nodeagent-absent.service"


def reported(host: Host) -> str:
    host.run(["systemctl", "start", UNIT])
    return host.run(["journalctl", "-b", "-q", "-o", "cat", "-t", "nodeagent-absent"]).stdout


@pytest.mark.finding(
    "attack: configs against the agent", "A boot without an agent in the middle of an update reports what is held."
)
def test_a_boot_without_an_agent_reports_what_is_held(make_node: HostMaker) -> None:
    host = make_node(files={agent.POLICY: agent.policy(files={"/etc/slow": ["Restart slow.service"]})})
    assert host.unit("nodeagent-absent.timer", "ActiveState")["ActiveState"] == "active"
    assert reported(host) == "", "no update is under way"
    slow = "[Service]\nType=oneshot\nExecStart=/usr/bin/sleep 300\n"
    host.write("/etc/systemd/system/slow.service", slow)
    host.run(["systemctl", "daemon-reload"])
    agent.apply(host, machine_config("worker-8", files={"/etc/slow": "1"}))
    host.wait_for(lambda: agent.status(host)["phase"] == "Acting", "the update is half-way")
    host.wait_for(lambda: host.run(["cat", "/var/lib/nodeagent/under-way"], check=False).returncode == 0, "the text")
    assert reported(host) == "", "the agent runs"
    # By hand, as a config would be refused.
    host.run(["systemctl", "mask", agent.UNIT])
    host.power_cut()
    text = reported(host)
    assert "the update to worker-8 is under way" in text
    assert "systemctl unmask nodeagent; systemctl enable --now nodeagent" in text
    host.write("/etc/systemd/system/slow.service", slow.replace("300", "0"))
    host.run(["systemctl", "unmask", agent.UNIT])
    host.run(["systemctl", "enable", "--now", agent.UNIT])
    wait_done(host, "worker-8")
    gone = "the text is removed after the update"
    host.wait_for(lambda: host.run(["cat", "/var/lib/nodeagent/under-way"], check=False).returncode != 0, gone)
