# SPDX-License-Identifier: Apache-2.0
"""The power fails at each point of an update of the OS: the host completes it without help, in one piece.

What a cut loses is /run, with the staged deployment in it. Files that were not synced are kept here; losing those is
for the virtual machine.
"""

from __future__ import annotations

import random
import time

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree import updates
from integration.hosts.ostree.conftest import OstreeHostMaker, Publish
from integration.hosts.ostree.ostree_host import FINALIZE, OstreeHost
from integration.hosts.ostree.updates import CUTS, SEED
from integration.trees.tree import A, B
from nodeagent.reasons import Reason
from nodeagent.update.ports.events import UpdateResumed, UpdateWaiting

AT_ONCE = 2  # times that it is staged again before there is a pause
LONGEST = 6.0  # seconds from the beginning of an update within which the power fails
# Stopped after so long, the finalization is at one of its steps; which one is chance.
HALF_FINALIZED = """\
[Service]
ExecStop=
ExecStop=/bin/sh -c 'ostree admin finalize-staged & sleep {delay}; kill -STOP $!; touch /var/lib/half; sleep 60'
"""


def begin(node: OstreeHost, publish: Publish) -> None:
    agent.apply(node, updates.config("b", publish(B)))


def converges(node: OstreeHost) -> None:
    updates.wait_updated(node, "b", B)
    assert agent.outcomes(node) == [("a", "done"), ("b", "done")]
    assert updates.ran(node)[-1] == "mine of b | content of b"


def test_while_staging(node_at_a: OstreeHost, publish: Publish) -> None:
    updates.inject_faults(node_at_a, updates.SLOW)
    begin(node_at_a, publish)
    updates.wait_step(node_at_a, "Fetching ostree chunk")
    node_at_a.power_cut()
    converges(node_at_a)
    assert node_at_a.reboots == 1


def test_when_it_is_staged(node_at_a: OstreeHost, publish: Publish) -> None:
    """The deployment is there, and the agent has not heard of it yet."""
    updates.inject_faults(node_at_a, {"at": "staged", "do": "sleep", "seconds": 60})
    begin(node_at_a, publish)
    node_at_a.wait_for(lambda: node_at_a.exists("/run/ostree/staged-deployment"), "B is staged", updates.WAIT)
    node_at_a.power_cut()
    converges(node_at_a)
    assert node_at_a.reboots == 1


def test_while_waiting_for_the_lease(node_at_a: OstreeHost, publish: Publish) -> None:
    """A maintenance begins after the staging and lasts beyond the boot."""
    node = node_at_a
    updates.inject_faults(node, {"at": "staged", "do": "sleep", "seconds": 3})
    begin(node, publish)
    node.wait_for(lambda: node.exists("/run/ostree/staged-deployment"), "B is staged", updates.WAIT)
    # The agent reads a new desired config once more a moment later, and a staging ends where the lease is taken then.
    node.run(["sleep", "1"])
    node.run(["nodeagent", "maintenance", "start", "--reason", "disk"])
    agent.wait_phase(node, "Leasing")
    node.power_cut()
    alone = [f"{A.version} booted"]
    updates.wait_status(node, "B is lost", lambda now: (now["phase"], updates.shown(now)) == ("Staging", alone))
    node.run(["nodeagent", "maintenance", "stop"])
    converges(node)
    assert node.reboots == 1


def test_when_the_files_are_written(node_at_a: OstreeHost, publish: Publish) -> None:
    updates.block_reboot(node_at_a)
    begin(node_at_a, publish)
    updates.wait_blocked(node_at_a)
    node_at_a.power_cut()
    converges(node_at_a)
    assert updates.ran(node_at_a) == ["mine of b | content of a", "mine of b | content of b"]


def test_between_unlocking_and_the_reboot(node_at_a: OstreeHost, publish: Publish) -> None:
    node = node_at_a
    updates.delay_shutdowns(node)
    begin(node, publish)
    there = [f"{B.version} staged", f"{A.version} booted"]
    updates.wait_status(node, "it is unlocked", lambda now: updates.shown(now) == there)
    node.power_cut()
    converges(node)
    assert node.reboots == 1


@pytest.mark.slow
def test_once_more_each_time(node_at_a: OstreeHost, publish: Publish) -> None:
    """Between unlocking and the reboot again and again; it gets there when the power stays."""
    node = node_at_a
    updates.delay_shutdowns(node)
    begin(node, publish)
    there = [f"{B.version} staged", f"{A.version} booted"]
    for _ in range(AT_ONCE + 1):
        updates.wait_status(node, "it is unlocked", lambda now: updates.shown(now) == there)
        node.power_cut()
    updates.wait_logged(node, UpdateWaiting, Reason.STAGED_LOST)
    # The boot does not last, so the same pause follows once more.
    node.power_cut()
    updates.wait_logged(node, UpdateWaiting, Reason.STAGED_LOST, count=2)
    waits = updates.logged(node, UpdateWaiting, Reason.STAGED_LOST)
    assert all(" 30 s " in entry["MESSAGE"] for entry in waits), "a wait that a power cut ended is not counted"
    converges(node)
    assert node.reboots == 1


@pytest.mark.parametrize("delay", [0, 0.08, 0.12])
def test_during_finalization(node_at_a: OstreeHost, publish: Publish, delay: float) -> None:
    node_at_a.write(f"/run/systemd/system/{FINALIZE}.d/half.conf", HALF_FINALIZED.format(delay=delay))
    node_at_a.run(["systemctl", "daemon-reload"])
    begin(node_at_a, publish)
    node_at_a.wait_for(lambda: node_at_a.exists("/var/lib/half"), "finalization stopped", updates.WAIT)
    node_at_a.power_cut()
    converges(node_at_a)


def test_right_after_the_boot(node_at_a: OstreeHost, publish: Publish) -> None:
    begin(node_at_a, publish)
    node_at_a.wait_for(lambda: len(node_at_a.boots) > 1, "the second boot begins", updates.WAIT)
    node_at_a.power_cut()
    converges(node_at_a)
    assert node_at_a.reboots == 1


def test_while_verifying(make_node_at_a: OstreeHostMaker, publish: Publish) -> None:
    node = make_node_at_a(settings={"actions": {"settle": 3}})
    begin(node, publish)
    updates.wait_logged(node, UpdateResumed)
    node.power_cut()
    converges(node)
    assert node.reboots == 1


def test_at_random_times(node_at_a: OstreeHost, publish: Publish) -> None:
    node, chance = node_at_a, random.Random(SEED)
    print(f"NODEAGENT_CUTS={CUTS} NODEAGENT_CUTS_SEED={SEED}")
    for number in range(CUTS):
        name, tree = (("b", B), ("a", A))[number % 2]
        agent.apply(node, updates.config(name, publish(tree)))
        time.sleep(after := chance.uniform(0, LONGEST))
        print(f"cut {number} after {after:.3f} s")
        node.power_cut()
        updates.wait_updated(node, name, tree)
