# SPDX-License-Identifier: Apache-2.0
"""An update of the OS by the agent, from A to B and back, on a host that boots what is deployed."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.nodeagent_client import UnitSpec
from integration.hosts.ostree import updates
from integration.hosts.ostree.conftest import Publish
from integration.hosts.ostree.ostree_host import OstreeHost
from integration.hosts.snapshot import difference
from integration.trees.tree import DEFAULTS, NEW_UNIT, A, B

WAITING = "apply.service"
LINK = f"/etc/systemd/system/multi-user.target.wants/{NEW_UNIT}"
HEART = "heart.service"
HEARTBEAT = """\
[Service]
ExecStart=/bin/sh -c 'while echo "$(date +%%s%%N)" >>/run/heart; do sleep 0.05; done'
"""
LONGEST_PAUSE = 1.5  # seconds between two beats on a busy machine; the sleeping layer alone takes longer


def test_from_a_to_b_and_back(node_at_a: OstreeHost, publish: Publish) -> None:
    node = node_at_a
    assert node.reboots == 0, "it has A already"
    before = agent.managed(node)
    node.write(f"/run/systemd/system/{HEART}", HEARTBEAT)
    node.run(["systemctl", "start", HEART])
    updates.inject_faults(node, updates.SLOW)
    node.write("/run/b.yaml", updates.config("b", publish(B)))
    # A unit of the host, because the command has to see the shutdown as one of an operator would.
    node.run(["systemd-run", f"--unit={WAITING}", "nodeagent", "apply", "--wait", "/run/b.yaml"])

    # During the pull the status reports the progress, and the running system does not change.
    now = updates.wait_step(node, "Fetching ostree chunk")
    assert (now["phase"], now["current"], now["desired"], now["lease"]) == ("Staging", "a", "b", None)
    assert now["step"]["count"] == 5
    assert updates.shown(now) == [f"{A.version} booted"]
    by_command = json.loads(node.run(["nodeagent", "status", "--json"]).stdout)
    assert (by_command["phase"], by_command["deployments"]) == ("Staging", now["deployments"])
    staged = updates.wait_status(node, "B is staged", lambda s: len(s["deployments"]) == 2)
    assert updates.shown(staged) == [f"{B.version} staged locked", f"{A.version} booted"]
    beats = [int(beat) for beat in node.read_text("/run/heart").split()]
    agent.wait_done(node, "b", updates.WAIT)
    waited = "\n".join(entry["MESSAGE"] for entry in node.journal(WAITING))
    assert "Fetching ostree chunk" in waited
    assert "StillUnderWay" in waited, "the host goes down under it"
    pauses = [(after - before) / 1e9 for before, after in pairwise(beats)]
    assert max(pauses) < LONGEST_PAUSE

    assert node.reboots == 1
    updates.check(node, "b", B)
    assert node.read_text(DEFAULTS) == B.files[DEFAULTS]
    assert node.is_active(NEW_UNIT)
    last = json.loads(node.run(["nodeagent", "history", "--json"]).stdout)["updates"][0]
    assert (last["from_name"], last["to_name"], last["outcome"]) == ("a", "b", "done")
    assert (last["disruption"], last["reboots"]) == ("reboot", 1)
    shown = json.loads(node.run(["nodeagent", "status", "--json"]).stdout)
    assert updates.shown(shown) == [f"{B.version} booted", A.version]
    assert [d["digest"] for d in shown["deployments"]] == [publish(B).digest, publish(A).digest]

    agent.apply(node, updates.config("a", publish(A)))
    updates.wait_updated(node, "a", A)
    assert node.reboots == 2
    assert agent.outcomes(node) == [("a", "done"), ("b", "done"), ("a", "done")]
    assert difference(before, agent.managed(node)) == []


@pytest.mark.finding(
    "units: unit files of a staged OS",
    "A unit of the next OS is enabled by the config that brings the OS, in one reboot.",
)
def test_a_unit_of_the_next_os_is_enabled_for_its_first_boot(node_at_a: OstreeHost, publish: Publish) -> None:
    node = node_at_a
    units = {updates.MINE_UNIT: UnitSpec(updates.UNIT, enabled=True), NEW_UNIT: UnitSpec(enabled=True)}
    units["release-c.service"] = UnitSpec(enabled=True)
    files = {updates.MINE: "mine of b\n"}
    agent.apply(node, agent.machine_config("b", files=files, units=units, osImageURL=publish(B).by_digest))
    updates.wait_updated(node, "b", B)
    assert node.reboots == 1
    assert node.run(["systemctl", "is-enabled", NEW_UNIT]).stdout.strip() == "enabled"
    assert node.run(["readlink", LINK]).stdout.strip() == f"/usr/lib/systemd/system/{NEW_UNIT}"
    entry = agent.history(node)[0]
    assert entry["outcome"] == "done"
    assert "there is no unit release-c.service on this host, in the config or in the next OS" in entry["message"]


def test_a_file_that_is_equal_to_the_old_default(node_at_a: OstreeHost, publish: Publish) -> None:
    """libostree takes the file for an unchanged default, and the new OS brings its own; the config wins."""
    node = node_at_a
    files = {updates.MINE: "mine of b\n", DEFAULTS: A.files[DEFAULTS]}
    units = {updates.MINE_UNIT: UnitSpec(updates.UNIT, enabled=True)}
    updates.block_reboot(node)
    agent.apply(node, agent.machine_config("b", files=files, units=units, osImageURL=publish(B).by_digest))
    # Before the boot, the status reports what it changes, and that the merge is going to replace the file.
    now = updates.wait_status(node, "B was compared with A", lambda s: s["os_changes"] and s["phase"] == "Rebooting")
    changes = now["os_changes"]
    assert (changes["packages"], changes["merged"]) == (None, [DEFAULTS])
    assert changes["files"]["added"] > 0
    assert changes["files"]["changed"] > 0
    assert changes["kernel_arguments"] == {"added": [], "removed": []}
    assert changes["summary"] in node.run(["nodeagent", "status"]).stdout
    updates.unblock_reboot(node)
    updates.wait_updated(node, "b", B)
    assert agent.status(node)["os_changes"] is None
    assert node.read_text(DEFAULTS) == A.files[DEFAULTS]
    assert node.reboots == 2, "services that started before it was written again must not keep the other one"
    assert agent.outcomes(node) == [("a", "done"), ("b", "done")]
    # Without the entry it is as this OS ships it, not as the one before did.
    agent.apply(node, updates.config("c", publish(B)))
    agent.wait_done(node, "c", updates.WAIT)
    assert node.read_text(DEFAULTS) == B.files[DEFAULTS]
