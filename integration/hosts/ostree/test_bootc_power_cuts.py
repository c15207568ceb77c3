# SPDX-License-Identifier: Apache-2.0
"""The power fails at each point of an update of the OS of a host with bootc: the host completes it without help.

As in `test_power_cuts`, with the points that the units of this back end have. What was written is kept here.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree import updates
from integration.hosts.ostree.conftest import Publish
from integration.hosts.ostree.ostree_host import FINALIZE, STAGED, OstreeHost
from integration.hosts.ostree.registry_faults import behave, blobs, misbehave, wait_pulling
from integration.hosts.ostree.test_power_cuts import HALF_FINALIZED
from integration.trees.tree import A, B

DEPLOY = "nodeagent-deploy.service"
CHECK = "nodeagent-check-tree.service"
# A boot removes them.
SLOW = "/run/systemd/system/{}.d/slow.conf"
BEFORE = "[Service]\nExecStartPre=/usr/bin/sleep infinity\n"
BEHIND = "[Service]\nExecStartPost=/usr/bin/sleep infinity\n"


def hold(node: OstreeHost, unit: str, how: str) -> None:
    node.write(SLOW.format(unit), how)
    node.run(["systemctl", "daemon-reload"])


def wait_held(node: OstreeHost, unit: str) -> None:
    states = ("start-pre", "start-post", "activating")
    node.wait_for(lambda: node.unit(unit, "SubState")["SubState"] in states, f"{unit} is held", updates.WAIT)


def pulling(node: OstreeHost, start: Callable[[], None]) -> None:
    """A half of a layer is here."""
    misbehave(node, of="/blobs/", hang=True)
    start()
    wait_pulling(node, updates.WAIT)
    behave(node)


def pulled(node: OstreeHost, start: Callable[[], None]) -> None:
    """All of the image is here, and no deployment of it."""
    hold(node, DEPLOY, BEFORE)
    start()
    wait_held(node, DEPLOY)
    assert not node.exists(STAGED)


def deployed(node: OstreeHost, start: Callable[[], None]) -> None:
    """It is staged, and the agent has not heard of it yet."""
    hold(node, DEPLOY, BEHIND)
    start()
    node.wait_for(lambda: node.exists(STAGED), "it is staged", updates.WAIT)


def checking(node: OstreeHost, start: Callable[[], None]) -> None:
    hold(node, CHECK, BEFORE)
    start()
    wait_held(node, CHECK)
    assert node.deployments()[0].locked


def written(node: OstreeHost, start: Callable[[], None]) -> None:
    """All files are those of the new config."""
    updates.block_reboot(node)
    start()
    updates.wait_blocked(node)


def unlocked(node: OstreeHost, start: Callable[[], None]) -> None:
    updates.delay_shutdowns(node)
    start()
    there = [f"{B.version} staged", f"{A.version} booted"]
    updates.wait_status(node, "it is unlocked", lambda now: updates.shown(now) == there)


def finalizing(node: OstreeHost, start: Callable[[], None]) -> None:
    hold(node, FINALIZE, HALF_FINALIZED.format(delay=0.1))
    start()
    node.wait_for(lambda: node.exists("/var/lib/half"), "finalization stopped", updates.WAIT)


def booting(node: OstreeHost, start: Callable[[], None]) -> None:
    start()
    node.wait_for(lambda: len(node.boots) > 1, "the second boot begins", updates.WAIT)


MOMENTS = (pulling, pulled, deployed, checking, written, unlocked, finalizing, booting)
# Those that no other back end has.
FEW = (pulling, deployed)


@pytest.mark.parametrize(
    "moment",
    [pytest.param(moment, marks=() if moment in FEW else pytest.mark.long) for moment in MOMENTS],
    ids=lambda moment: moment.__name__,
)
def test_a_power_cut(
    bootc_node_at_a: OstreeHost, publish_bootc_node: Publish, moment: Callable[[OstreeHost, Callable[[], None]], None]
) -> None:
    node, image = bootc_node_at_a, publish_bootc_node(B)
    moment(node, lambda: agent.apply(node, updates.config("b", image)))
    boots = len(node.boots)
    node.power_cut()
    updates.wait_updated(node, "b", B)
    assert agent.outcomes(node) == [("a", "done"), ("b", "done")]
    assert updates.ran(node)[-1] == "mine of b | content of b"
    assert len(node.boots) <= boots + 2, "the cut, and one reboot"
    # What was pulled before the cut is not pulled again.
    layers = len(blobs(node))
    assert layers <= 3, "the config, the commit, and the one layer that differs"
