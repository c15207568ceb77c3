# SPDX-License-Identifier: Apache-2.0
"""Sections that no running host can take: refused, then accepted by name, reported, and never applied."""

from __future__ import annotations

import json

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.configs import HOLD, SLOW
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import wait_daemon, wait_done, wait_phase

pytestmark = pytest.mark.long

SECTION = "storage.disks[/dev/vda]"
FILE = "/etc/slow.conf"
POLICY = agent.policy(files={FILE: ["Restart slow.service"]})


def config(name: str, text: str, label: str) -> str:
    document = json.loads(agent.machine_config(name, files={FILE: text}))
    disk = {"device": "/dev/vda", "partitions": [{"label": label, "number": 1}]}
    document["spec"]["config"]["storage"]["disks"] = [disk]
    return json.dumps(document)


def words(host: Host, *command: str) -> str:
    """Return what a command shows, without its line breaks."""
    return " ".join(host.run(["nodeagent", *command], check=False).stdout.split())


def left_out(host: Host) -> list[str]:
    sections: list[str] = agent.status(host)["left_out"]
    return sections


def test_disks_are_left_out_and_the_rest_is_applied(make_node: HostMaker) -> None:
    node = make_node(files={agent.POLICY: POLICY, "/etc/systemd/system/slow.service": SLOW})
    first, second = config("first", "1", "data"), config("second", "2", "other")
    agent.apply(node, first)
    wait_done(node, "first")
    assert left_out(node) == []

    refused = agent.apply_command(node, second, "--yes", check=False)
    assert refused.returncode == 3
    assert SECTION in refused.stderr
    assert "irreconcilable.accept with storage.disks" in refused.stderr
    assert node.read_text(FILE) == "1"

    agent.settings(node, {"irreconcilable": {"accept": ["storage.disks"]}})
    node.run(["systemctl", "reload", agent.UNIT])
    node.write("/root/first.json", first)
    node.write("/root/second.json", second)
    warning = f"spec.config.{SECTION} changes and is not applied, which is accepted"
    assert warning in words(node, "plan", "/root/second.json")
    between = ("plan", "--from", "/root/first.json", "--to", "/root/second.json", "--json")
    assert json.loads(words(node, *between))["warnings"][0]["path"] == f"spec.config.{SECTION}"
    planned = json.loads(words(node, "plan", "--json", "/root/second.json"))
    node.run(["systemctl", "stop", agent.UNIT])
    from_store = json.loads(words(node, "plan", "--json", "/root/second.json"))
    assert f"warning: {warning}" in planned["notes"]
    assert (from_store["notes"], from_store["daemon"]) == (planned["notes"], "stopped")
    node.run(["systemctl", "start", agent.UNIT])
    wait_daemon(node)

    # Killed in the middle.
    node.write(HOLD, "")
    agent.apply(node, second)
    wait_phase(node, "Acting")
    node.kill(agent.UNIT)
    wait_daemon(node)
    node.run(["rm", HOLD])
    wait_done(node, "second")
    assert node.read_text(FILE) == "2"
    node.wait_for(lambda: left_out(node) == [SECTION], "the status names it")
    node.run(["systemctl", "restart", agent.UNIT])
    wait_daemon(node)
    node.wait_for(lambda: left_out(node) == [SECTION], "the status names it after a restart")
    assert f"left out {SECTION} (this host keeps what it was installed with)" in words(node, "status")
    assert warning in words(node, "history", "show")
    verified = json.loads(words(node, "verify", "--json"))
    assert (verified["ok"], SECTION in {entry["entry"] for entry in verified["not_compared"]}) == (True, True)

    # The way back needs no setting.
    agent.settings(node)
    node.run(["systemctl", "reload", agent.UNIT])
    assert left_out(node) == [SECTION]
    agent.apply(node, first)
    wait_done(node, "first")
    assert "not applied" not in words(node, "history", "show")
    node.wait_for(lambda: left_out(node) == [], "nothing is left out any more")
    assert "left out" not in words(node, "status")
    assert [outcome for _, outcome in agent.outcomes(node)] == ["done"] * 3
    assert node.reboots == 0
