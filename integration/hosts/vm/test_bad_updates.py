# SPDX-License-Identifier: Apache-2.0
"""Updates of the OS that cannot end well, on a really booted system: the old deployment runs again, and that is it."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.nodeagent_client import UnitSpec
from integration.hosts.ostree import updates
from integration.hosts.ostree.ostree_host import deployments_of
from integration.hosts.snapshot import Entry, difference
from integration.hosts.vm import nodes
from integration.hosts.vm.registry_disk import RegistryDisk
from integration.hosts.vm.virtual_machine import Vm
from integration.trees.tree import BAD, BAD_UNIT, A, B

FULL = "/boot/full"
NO_LOOP = 20.0  # seconds at rest, many times what the agent waits between two looks at a config


def came_back(node: Vm, before: Mapping[str, Entry]) -> None:
    """A and the files of `a` run and boot next, and it stays so."""
    reboots, outcomes = node.reboots, agent.outcomes(node)
    updates.check(node, "a", A)
    assert difference(before, agent.managed(node)) == []
    time.sleep(NO_LOOP)
    assert (node.reboots, agent.outcomes(node)) == (reboots, outcomes)


@pytest.mark.slow
@pytest.mark.timeout(nodes.WAIT * 4)
def test_a_bad_deployment_is_rolled_back(node: Vm, shelf: RegistryDisk) -> None:
    nodes.settings(node, {"verify": {"timeout": 60}})  # as long as it waits for a unit that was well before
    before = agent.managed(node)
    units = {updates.MINE_UNIT: UnitSpec(updates.UNIT, enabled=True), BAD_UNIT: UnitSpec(enabled=True)}
    files = {updates.MINE: "mine of bad\n"}
    agent.apply(node, agent.machine_config("bad", files=files, units=units, osImageURL=shelf.of(BAD).by_digest))
    end = agent.wait_outcome(node, "bad", nodes.WAIT * 3)  # three boots
    assert (end["outcome"], end["reason"]) == ("reverted", "UnitUnhealthy")
    assert BAD_UNIT in end["message"]
    # Forward, back, and once more because services of that boot had read the files of `bad`.
    assert (end["reboots"], node.reboots) == (3, 3)
    came_back(node, before)


@pytest.mark.long
def test_boot_too_full_when_it_is_finalized(node: Vm, shelf: RegistryDisk) -> None:
    nodes.settings(node, {"reboot": {"inhibitor_wait": nodes.WAIT}})
    before = agent.managed(node)
    updates.block_reboot(node)
    agent.apply(node, updates.config("b", shelf.of(B)))
    agent.wait_phase(node, "Rebooting", timeout=nodes.WAIT)
    # There was room when it was looked at, before the staging.
    node.run(["mount", "-o", "remount,rw", "/boot"])
    node.run(["sh", "-c", f'fallocate --length="$(df -B1 --output=avail /boot | tail -n1)" {FULL}'])
    node.fill_disk(f"{FULL}.2")
    node.run(["mount", "-o", "remount,ro", "/boot"])
    updates.unblock_reboot(node)

    end = agent.wait_outcome(node, "b", nodes.WAIT)
    assert (end["outcome"], end["reason"]) == ("reverted", "FinalizeFailed")
    assert "No space left on device" in end["message"]
    assert len(deployments_of(node)) == 1
    came_back(node, before)
