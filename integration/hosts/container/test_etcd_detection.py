# SPDX-License-Identifier: Apache-2.0
"""A member of etcd that only its process gives away, seen by the installed daemon with the capabilities of its unit."""

from __future__ import annotations

import json

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import machine_config, wait_outcome, wait_phase

# A program of that name in a unit of another, with its data in an unusual place. It does not answer.
UNIT = "database.service"
MEMBER = """[Service]
ExecStart=/srv/etcd infinity
"""


def start_member(host: Host) -> None:
    host.run(["cp", "/bin/sleep", "/srv/etcd"])
    host.write(f"/etc/systemd/system/{UNIT}", MEMBER)
    host.run(["systemctl", "daemon-reload"])
    host.run(["systemctl", "start", UNIT])


@pytest.mark.long
@pytest.mark.finding(
    "etcd: processes that look like a member",
    "A process named etcd that cannot be inspected counts as the member: the update waits.",
)
def test_an_update_waits_for_a_member_that_cannot_be_inspected(node: Host) -> None:
    host = node
    start_member(host)
    pid = host.unit(UNIT, "MainPID")["MainPID"]
    shown = host.run(["nodeagent", "etcd", "status", "--json"], check=False)
    found = json.loads(shown.stdout)
    assert (shown.returncode, found["source"], found["signs"]) == (4, "daemon", [f"process {pid}"])

    agent.apply(host, machine_config("reboots", files={"/etc/needs-a-reboot": "1"}))
    wait_phase(host, "Leasing", reason="EtcdUnreachable")
    assert host.reboots == 0

    host.run(["systemctl", "stop", UNIT])
    wait_outcome(host, "reboots")
    assert agent.outcomes(host) == [("reboots", "done")]
    assert host.reboots == 1


@pytest.mark.finding(
    "etcd: processes that look like a member", "A user cannot block updates with a process of that name in a session."
)
def test_a_process_of_a_user_blocks_nothing(node: Host) -> None:
    node.run(["cp", "/bin/sleep", "/srv/etcd"])
    session = ["systemd-run", "--unit=pretender", "--slice=user-1000.slice", "--uid=core", "/srv/etcd", "infinity"]
    node.run(session)
    assert node.unit("pretender.service", "ActiveState")["ActiveState"] == "active"
    assert json.loads(node.run(["nodeagent", "etcd", "status", "--json"]).stdout)["member"] is False
