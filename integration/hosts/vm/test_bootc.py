# SPDX-License-Identifier: Apache-2.0
"""A really booted system that bootc updates: its kernel, its disk with /boot beside it, its reboots.

All that pulls, stages and boots is real, and the registry is a program in the guest. In CI these are skipped, which has
no time to build `ostree container`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.nodeagent_client import UnitSpec
from integration.hosts.ostree import updates
from integration.hosts.ostree.ostree_host import deployments_of
from integration.hosts.ostree.registry_faults import behave, misbehave, wait_pulling
from integration.hosts.snapshot import difference
from integration.hosts.vm import nodes
from integration.hosts.vm.registry_disk import RegistryDisk
from integration.hosts.vm.test_power_cuts import finalizing, staged, unlocked
from integration.hosts.vm.virtual_machine import Vm
from integration.trees.tree import BAD, BAD_UNIT, A, B
from nodeagent.features.bootc.units import ADMIN, PULL, SLICE
from nodeagent.features.fence.events import FenceChanged

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(nodes.WAIT * 4)]

ARGUMENT = "ring=four"


def limits(node: Vm) -> str:
    """Return the present limits of the kernel for all that writes for the staging; "" where nothing does."""
    group = node.unit(SLICE, "ControlGroup")["ControlGroup"]
    return node.run(["sh", "-c", f"cat /sys/fs/cgroup{group or '/none'}/io.max"], check=False).stdout.strip()


def capped(node: Vm) -> bool:
    return "wiops=" in limits(node).replace("wiops=max", "") or "wbps=" in limits(node).replace("wbps=max", "")


def test_from_a_to_b_and_back_behind_the_fence(bootc_node: Vm, bootc_shelf: RegistryDisk) -> None:
    node = bootc_node
    # Without an etcd, which would keep the node from its reboot.
    nodes.settings(node, {"fence": {"enabled": "always"}})
    before = agent.managed(node)
    # A fast disk needs no fence, and the pull stops where it can be looked at.
    node.throttle(iops=500, bytes_per_second=12_000_000)
    misbehave(node, of="/blobs/", hang=True)
    agent.apply(node, updates.config("b", bootc_shelf.of(B), kernelArguments=[ARGUMENT]))
    wait_pulling(node, nodes.WAIT)
    group = node.unit(PULL, "ControlGroup")["ControlGroup"]
    assert group == f"/system.slice/{SLICE}/{PULL}"
    assert capped(node), "from the first byte on"
    behave(node)
    # What waits for the rest of a layer is ended, as by an admin, and begins again behind the same limits.
    node.run(["systemctl", "kill", "--signal=KILL", PULL], timeout=nodes.UNIT_WAIT)
    there = updates.wait_status(node, "B is staged", lambda now: len(now["deployments"]) == 2, nodes.WAIT)
    assert updates.shown(there) == [f"{B.version} staged locked", f"{A.version} booted"]
    updates.wait_updated(node, "b", B, nodes.WAIT)
    assert (node.reboots, len(node.boots)) == (1, 2)
    assert ARGUMENT in node.read_text("/proc/cmdline").split()
    events = updates.logged(node, FenceChanged)
    assert not [entry["MESSAGE"] for entry in events if "not found" in entry["MESSAGE"]]
    assert not capped(node)

    node.run(["nodeagent", "rollback"], timeout=nodes.UNIT_WAIT)
    updates.wait_updated(node, "a", A, nodes.WAIT)
    assert node.reboots == 2
    assert ARGUMENT not in node.read_text("/proc/cmdline").split()
    assert agent.outcomes(node) == [("a", "done"), ("b", "done"), ("a", "done")]
    assert difference(before, agent.managed(node)) == []
    # For the page about the fence: what the deployment itself has written.
    said = node.run(["journalctl", "--no-pager", "-o", "cat", f"--unit={ADMIN}"]).stdout
    print("\n".join(line for line in said.splitlines() if "Consumed" in line or "written" in line))


def test_a_bad_deployment_is_rolled_back(bootc_node: Vm, bootc_shelf: RegistryDisk) -> None:
    node = bootc_node
    nodes.settings(node, {"verify": {"timeout": 60}})
    before = agent.managed(node)
    units = {updates.MINE_UNIT: UnitSpec(updates.UNIT, enabled=True), BAD_UNIT: UnitSpec(enabled=True)}
    image = bootc_shelf.of(BAD).by_digest
    agent.apply(node, agent.machine_config("bad", files={updates.MINE: "mine of bad\n"}, units=units, osImageURL=image))
    end = agent.wait_outcome(node, "bad", nodes.WAIT * 3)
    assert (end["outcome"], end["reason"]) == ("reverted", "UnitUnhealthy")
    assert BAD_UNIT in end["message"]
    updates.check(node, "a", A)
    assert difference(before, agent.managed(node)) == []
    assert deployments_of(node)[0].booted


def pulling(node: Vm, start: Callable[[], None]) -> None:
    """A half of a layer is here."""
    misbehave(node, of="/blobs/", hang=True)
    start()
    wait_pulling(node, nodes.WAIT)
    behave(node)
    node.run(["sync"])


def deployed(node: Vm, start: Callable[[], None]) -> None:
    """It is staged, and the agent has not heard of it yet."""
    node.write(f"/run/systemd/system/{ADMIN}.d/slow.conf", "[Service]\nExecStartPost=/usr/bin/sleep infinity\n")
    node.run(["systemctl", "daemon-reload"])
    start()
    node.wait_for(lambda: node.exists("/run/ostree/staged-deployment"), "it is staged", nodes.WAIT)


@pytest.mark.parametrize(
    "moment", [pulling, deployed, staged, unlocked, finalizing], ids=lambda moment: moment.__name__
)
def test_a_power_cut(
    bootc_node: Vm, bootc_shelf: RegistryDisk, moment: Callable[[Vm, Callable[[], None]], None]
) -> None:
    """Data without a flush is lost: of the image, of the deployment, of /boot."""
    node = bootc_node
    old = node.boots[-1].options
    moment(node, lambda: agent.apply(node, updates.config("b", bootc_shelf.of(B))))
    node.power_cut(nodes.WAIT, complete=False)
    if moment is not finalizing:
        assert node.boots[-1].options == old, "nothing had touched the boot loader"
    updates.wait_updated(node, "b", B, nodes.WAIT)
    assert node.reboots == (1 if node.boots[1].options == old else 0)
    assert agent.outcomes(node) == [("a", "done"), ("b", "done")]
