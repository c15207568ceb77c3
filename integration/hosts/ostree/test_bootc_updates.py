# SPDX-License-Identifier: Apache-2.0
"""Updates of the OS on a host that bootc updates: everything that pulls and stages is real."""

from __future__ import annotations

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree import updates
from integration.hosts.ostree.conftest import Publish
from integration.hosts.ostree.ostree_host import STAGED, OstreeHost
from integration.hosts.ostree.registry_faults import behave, misbehave, wait_pulling
from integration.trees.tree import A, B

PULL = "nodeagent-pull.service"
DEPLOY = "nodeagent-deploy.service"
SLOW = f"/etc/systemd/system/{DEPLOY}.d/slow.conf"


@pytest.fixture
def publish_node(publish_bootc_node: Publish) -> Publish:
    return publish_bootc_node


@pytest.fixture
def node(bootc_node_at_a: OstreeHost) -> OstreeHost:
    return bootc_node_at_a


def test_an_update_and_the_way_back(node: OstreeHost, publish_node: Publish) -> None:
    b = publish_node(B)
    updates.block_reboot(node)
    agent.apply(node, updates.config("b", b, kernelArguments=["added=1", 'quoted="a b"']))
    updates.wait_blocked(node)
    staged = node.deployments()[0]
    assert (staged.staged, node.read_text("/proc/cmdline").count("added")) == (True, 0)
    updates.unblock_reboot(node)
    updates.wait_updated(node, "b", B)
    assert node.reboots == 1
    assert "added=1" in node.cmdline
    node.run(["nodeagent", "rollback"])
    updates.wait_updated(node, "a", A)
    assert node.reboots == 2
    assert "added=1" not in node.cmdline
    assert not node.exists(STAGED)


def test_pulls_that_fail(node: OstreeHost, publish_node: Publish) -> None:
    b = publish_node(B)
    agent.apply(node, updates.config("wrong", f"{b.name}@sha256:{'0' * 64}"))
    updates.wait_degraded(node, "ImageNotFound")
    misbehave(node, of="/blobs/", hang=True)
    updates.apply_again(node, updates.config("b", b))
    wait_pulling(node, updates.WAIT)
    # As an admin does, or a host without memory.
    node.run(["systemctl", "kill", "--signal=KILL", PULL])
    behave(node)
    updates.wait_retried(node, "StageFailed")
    updates.wait_updated(node, "b", B)
    assert node.reboots == 1


@pytest.mark.parametrize("agent_too", [False, True])
def test_what_a_killed_deploy_has_staged(node: OstreeHost, publish_node: Publish, agent_too: bool) -> None:
    """It is removed, whether the agent lives on or not. Nothing of it is ever unlocked."""
    node.write(SLOW, "[Service]\nExecStartPost=/usr/bin/sleep infinity\n")
    node.run(["systemctl", "daemon-reload"])
    agent.apply(node, updates.config("b", publish_node(B)))
    node.wait_for(lambda: node.exists(STAGED), "it is staged")
    node.run(["rm", SLOW])
    node.run(["systemctl", "daemon-reload"])
    if agent_too:
        node.run(["systemctl", "kill", "--signal=KILL", agent.UNIT])
    else:
        node.run(["systemctl", "kill", "--signal=KILL", DEPLOY])
    updates.wait_updated(node, "b", B)
    assert node.reboots == 1
    journal = node.run(["journalctl", "--no-pager", f"--unit={DEPLOY}", "--output=cat"]).stdout
    assert "remove the staged deployment" in journal


@pytest.mark.long
def test_a_full_disk(node: OstreeHost, publish_node: Publish) -> None:
    agent.settings(node, {"os": {"free_space": 0}})
    node.run(["systemctl", "restart", agent.UNIT])
    agent.wait_daemon(node)
    free = int(node.run(["df", "--output=avail", "--block-size=1M", "/sysroot"]).stdout.split()[-1])
    node.run(["fallocate", "--length", f"{free - 30}M", "/var/fill"])
    agent.apply(node, updates.config("b", publish_node(B)))
    updates.wait_degraded(node, "NoSpace")
    assert not node.exists(STAGED)
    node.run(["rm", "/var/fill"])
    updates.apply_again(node, updates.config("b", publish_node(B)))
    updates.wait_updated(node, "b", B)
