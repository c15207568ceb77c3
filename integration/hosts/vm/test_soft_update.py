"""An update of the OS by a soft reboot, with the real libostree, on a booted system with composefs.

B has the kernel and the initramfs of A; NEW_KERNEL has another initramfs, so it needs the start of a kernel.
"""

from __future__ import annotations

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree import updates
from integration.hosts.vm import nodes
from integration.hosts.vm.registry_disk import RegistryDisk
from integration.hosts.vm.soft_reboots import kinds
from integration.hosts.vm.virtual_machine import Vm
from integration.trees.tree import DEFAULTS, NEW_UNIT, B

pytestmark = [pytest.mark.slow, pytest.mark.long]

LOCAL = "/etc/local.conf"
NEXT_ROOT = "/run/nextroot"


@pytest.fixture
def node(composefs_node: Vm) -> Vm:
    """A node that updates the OS by a soft reboot, with a local file in /etc that no config has."""
    composefs_node.write(LOCAL, "local\n")
    composefs_node.run(["sync", LOCAL])
    nodes.settings(composefs_node, {"reboot": {"soft": "auto"}})
    return composefs_node


def check(node: Vm) -> None:
    """B is booted, with its own defaults in /etc and the local files of A, and nothing failed or is left."""
    updates.check(node, "b", B)
    assert node.run(["findmnt", "-no", "SOURCE", "/"]).stdout.strip() == "composefs"
    for mount, options in (("/sysroot", "ro"), ("/boot", "ro"), ("/etc", "rw"), ("/var", "rw")):
        assert node.run(["findmnt", "-no", "OPTIONS", mount]).stdout.split(",")[0] == options, mount
    assert (node.read_text(LOCAL), node.read_text(DEFAULTS)) == ("local\n", B.files[DEFAULTS])
    assert node.is_active(NEW_UNIT)
    assert node.run(["systemctl", "--failed", "--no-legend"]).stdout == ""
    assert node.run(["findmnt", NEXT_ROOT], check=False).returncode == 1


def test_a_soft_reboot_into_b(node: Vm, composefs_shelf: RegistryDisk) -> None:
    first, machine = node.boot_id, node.read_text("/etc/machine-id")
    agent.apply(node, updates.config("b", composefs_shelf.of(B)))
    updates.wait_updated(node, "b", B, nodes.WAIT)
    assert kinds(agent.history(node)[0]) == ("done", 1, 1)
    assert (len(node.boots), node.soft_reboots) == (1, 1)
    assert node.read_text("/proc/sys/kernel/random/boot_id").strip() == first
    assert node.read_text("/etc/machine-id") == machine
    check(node)
    with node.rebooting(nodes.WAIT):
        node.run(["systemctl", "reboot"])
    assert (len(node.boots), node.soft_reboots) == (2, 0)
    agent.wait_daemon(node, nodes.WAIT)
    check(node)
    assert node.read_text("/etc/machine-id") == machine


def test_another_kernel_needs_a_full_one(node: Vm, composefs_shelf: RegistryDisk) -> None:
    agent.apply(node, updates.config("k", composefs_shelf.of(nodes.NEW_KERNEL)))
    updates.wait_updated(node, "k", nodes.NEW_KERNEL, nodes.WAIT)
    entry = agent.history(node)[0]
    assert kinds(entry) == ("done", 1, 0)
    assert "KernelStartNeeded" in entry["message"]
    assert (node.reboots, node.soft_reboots) == (1, 0)


def test_a_power_cut_after_it_is_prepared(node: Vm, composefs_shelf: RegistryDisk) -> None:
    """What is staged is lost with /run, and so is what is prepared: it is done again."""
    old = node.boots[-1].options
    nodes.delay_shutdown(node)
    agent.apply(node, updates.config("b", composefs_shelf.of(B)))
    prepared = ["findmnt", "-no", "SOURCE", NEXT_ROOT]
    node.wait_for(lambda: node.run(prepared).stdout.strip() == "composefs", "it is prepared", nodes.WAIT)
    node.power_cut(nodes.WAIT, complete=False)
    assert node.boots[-1].options == old, "nothing had touched the boot loader"
    updates.wait_updated(node, "b", B, nodes.WAIT)
    assert agent.outcomes(node)[-1] == ("b", "done")
    assert len(node.boots) == 2 + node.reboots
    check(node)
