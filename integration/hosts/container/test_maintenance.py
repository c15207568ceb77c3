# SPDX-License-Identifier: Apache-2.0
"""Options of a maintenance: an end, waiting for an update, and a host that is powered off and stays off."""

from __future__ import annotations

import json
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.configs import POLICY_JSON, SIGNED
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import machine_config, wait_done

OFF_TIMEOUT = 60.0  # seconds for a shutdown, on a busy machine


def start(host: Host, *options: str) -> list[str]:
    return ["nodeagent", "maintenance", "start", "--reason", "new memory", "--requester", "jane", *options]


def maintenance(host: Host) -> dict[str, Any]:
    """{} if there is none."""
    return agent.status(host)["maintenance"] or {}


def waits(host: Host) -> bool:
    status = agent.status(host)
    return status["phase"] == "Leasing" and "jane (by root)" in status["message"]


def busy(host: Host, name: str) -> None:
    """An update to `name` that reloads for as long as /run/hold is there."""
    host.write(
        "/etc/systemd/system/crio.service.d/slow.conf",
        "[Service]\nExecReload=/bin/sh -c 'while [ -e /run/hold ]; do sleep 0.05; done'\n",
    )
    host.run(["systemctl", "daemon-reload"])
    host.write("/run/hold", "")
    agent.apply(host, machine_config(name, files={POLICY_JSON: SIGNED}))
    agent.wait_phase(host, "Acting")


@pytest.mark.long
def test_a_host_that_is_powered_off_stays_a_persons_until_they_give_it_back(node: Host) -> None:
    boot = node.boot_id
    said = node.run(start(node, "--power-off", "--for", "2h")).stdout
    assert "it is about to power off" in said
    node.container.wait_off(OFF_TIMEOUT)
    node.boot()
    assert node.boot_id != boot
    assert node.reboots == 0, "it went off, and was not rebooted"
    agent.wait_daemon(node)
    found = node.wait_for(lambda: maintenance(node), "the maintenance is still there")
    assert (found["state"], found["requester"], found["power_off"]) == ("under way", "jane (by root)", True)
    assert agent.status(node)["lease"]["expires"] != ""

    warned = agent.apply_command(node, machine_config("patient", files={POLICY_JSON: SIGNED}))
    assert "maintenance is under way: jane (by root): new memory" in warned.stderr
    node.wait_for(lambda: waits(node), "the update waits")
    entries = node.journal(agent.UNIT)
    asked = [entry for entry in entries if "NODEAGENT_REQUESTER" in entry]
    assert {entry["NODEAGENT_REQUESTER"] for entry in asked} == {"jane (by root)"}
    assert any(entry["MESSAGE"] == "maintenance: powering off" for entry in asked)
    assert maintenance(node)["state"] == "under way", "it is not powered off again"
    node.run(["nodeagent", "maintenance", "stop"])
    assert wait_done(node, "patient")["lease"] is None
    assert node.container.running


def test_a_power_off_waits_for_who_blocks_it_and_may_be_taken_back(node: Host) -> None:
    agent.block_reboots(node)
    node.run(start(node, "--power-off"))
    node.wait_for(lambda: "nightly backup" in maintenance(node)["message"], "it says whom it waits for")
    assert maintenance(node)["state"] == "powering off"
    node.run(["nodeagent", "maintenance", "stop"])
    assert maintenance(node) == {}
    agent.unblock_reboots(node)
    assert agent.status(node)["lease"] is None
    assert node.container.running


def planned_behind(node: Host, config: str) -> bool:
    # The state is stored before the lease is asked, whose answer is the message.
    found = maintenance(node)
    return found.get("state") == "planned" and config in found["message"]


@pytest.mark.long
def test_its_turn_is_after_the_update_and_before_the_next_one(node: Host) -> None:
    busy(node, "first")
    refused = node.run(start(node), check=False)
    assert refused.returncode == 4
    assert "warning: an update to first is in progress (Acting)" in refused.stderr
    assert "--wait" in refused.stderr
    node.run(["systemd-run", "--unit=asked", *start(node, "--wait")])
    node.wait_for(lambda: planned_behind(node, "first"), "it is planned, and names what it waits for")
    agent.apply(node, machine_config("second", files={POLICY_JSON: SIGNED.replace("}", " }", 1)}))
    node.run(["systemctl", "restart", agent.UNIT])
    agent.wait_daemon(node)
    assert maintenance(node)["state"] == "planned"
    node.run(["rm", "/run/hold"])
    node.wait_for(lambda: maintenance(node)["state"] == "under way", "the lease is given to who waited")
    node.wait_for(lambda: waits(node), "the next update waits")
    assert agent.outcomes(node)[-1] == ("first", "done")
    node.wait_for(lambda: not node.is_active("asked.service"), "the waiting client was answered")
    node.run(["nodeagent", "maintenance", "stop"])
    wait_done(node, "second")


@pytest.mark.long
def test_it_ends_when_its_time_is_over(node: Host) -> None:
    answer = json.loads(node.run([*start(node, "--for", "3s"), "--json"]).stdout)
    assert (answer["active"], answer["maintenance"]["until"] > answer["maintenance"]["since"]) == (True, True)
    agent.apply(node, machine_config("patient", files={POLICY_JSON: SIGNED}))
    wait_done(node, "patient")
    assert maintenance(node) == {}
    over = [entry["MESSAGE"] for entry in node.journal(agent.UNIT) if "over: its time is over" in entry["MESSAGE"]]
    assert len(over) == 1
