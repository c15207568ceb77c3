# SPDX-License-Identifier: Apache-2.0
"""Maintenance: an operator holds the lease, and nothing disrupts the host until it is released."""

from __future__ import annotations

import json

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.configs import POLICY_JSON, SIGNED
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import machine_config, unit_events, wait_done
from integration.hosts.snapshot import difference

START = ["nodeagent", "maintenance", "start", "--reason", "the disks are swapped"]


def maintenance(host: Host) -> dict[str, object]:
    answer: dict[str, object] = json.loads(host.run(["nodeagent", "maintenance", "status", "--json"]).stdout)
    return answer


@pytest.mark.long
def test_an_update_waits_for_the_maintenance_through_restarts_and_reboots(node: Host) -> None:
    assert maintenance(node)["active"] is False
    node.run(START)
    assert maintenance(node)["active"] is True
    again = node.run(START, check=False)
    assert again.returncode == 0, "once more by the same person is no conflict"
    before = agent.managed(node)
    agent.apply(node, machine_config("patient", files={POLICY_JSON: SIGNED}))

    def waits() -> bool:
        status = agent.status(node)
        return status["phase"] == "Leasing" and "the disks are swapped" in status["message"]

    node.wait_for(waits, "the update says whom it waits for")
    assert agent.status(node)["lease"]["operation"] == "maintenance"
    assert "the disks are swapped" in node.run(["nodeagent", "status"]).stdout
    assert "the disks are swapped" in node.run(["nodeagent", "lease", "show"]).stdout

    node.run(["systemctl", "restart", agent.UNIT])
    agent.wait_daemon(node)
    node.wait_for(waits, "a restart of the agent does not end the maintenance")
    with node.rebooting():
        node.run(["systemctl", "reboot"])
    node.wait_for(waits, "neither does a reboot of the host")
    assert difference(before, agent.managed(node)) == []
    assert "crio.service reload" not in unit_events(node)

    node.run(["nodeagent", "maintenance", "stop"])
    status = wait_done(node, "patient")
    assert status["lease"] is None
    assert unit_events(node, "crio.service")[-1] == "crio.service reload"
    stopped = node.run(["nodeagent", "maintenance", "stop"], check=False)
    assert (stopped.returncode, "NoMaintenance" in stopped.stderr) == (4, True)


@pytest.mark.long
def test_maintenance_is_refused_in_the_middle_of_an_update(node: Host) -> None:
    node.write(
        "/etc/systemd/system/crio.service.d/slow.conf",
        "[Service]\nExecReload=/bin/sh -c 'while [ -e /run/hold ]; do sleep 0.05; done'\n",
    )
    node.run(["systemctl", "daemon-reload"])
    node.write("/run/hold", "")
    agent.apply(node, machine_config("busy", files={POLICY_JSON: SIGNED}))
    agent.wait_phase(node, "Acting")
    refused = node.run(START, check=False)
    assert refused.returncode == 4
    assert "LeaseHeld" in refused.stderr
    assert "busy" in refused.stderr
    node.run(["rm", "/run/hold"])
    wait_done(node, "busy")
    node.run(START)
