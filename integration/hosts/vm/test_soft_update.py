# SPDX-License-Identifier: Apache-2.0
"""An update of the OS by a soft reboot, with the real libostree, on a booted system with composefs.

B has the kernel and the initramfs of A; NEW_KERNEL has another initramfs, so it needs the start of a kernel.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree import updates
from integration.hosts.vm import nodes
from integration.hosts.vm.registry_disk import RegistryDisk
from integration.hosts.vm.soft_reboots import hold_verification, kinds, release, wait_held
from integration.hosts.vm.virtual_machine import Vm
from integration.trees.tree import DEFAULTS, NEW_UNIT, B

pytestmark = [pytest.mark.slow, pytest.mark.long]

LOCAL = "/etc/local.conf"
NEXT_ROOT = "/run/nextroot"
Moment = Callable[[Vm, Callable[[], None]], None]


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


def prepared(node: Vm, start: Callable[[], None]) -> None:
    """B is prepared and logind has accepted the soft reboot, which a program delays."""
    nodes.delay_shutdown(node)
    start()
    mounted = ["findmnt", "-no", "SOURCE", NEXT_ROOT]
    node.wait_for(lambda: node.run(mounted).stdout.strip() == "composefs", "it is prepared", nodes.WAIT)


def going_down(node: Vm, start: Callable[[], None]) -> None:
    """Services are being stopped for the soft reboot; libostree may or may not have finalized B."""
    start()
    # Requested in the guest, because it is over in seconds.
    begun = "systemctl list-jobs --no-legend | grep -q soft-reboot.target"
    node.run(["sh", "-c", f"until {begun}; do sleep 0.2; done"], timeout=nodes.WAIT)


def verifying(node: Vm, start: Callable[[], None]) -> None:
    """B runs, and the agent has not verified all of it yet."""
    hold_verification(node)
    start()
    node.wait_for(lambda: node.soft_reboots == 1, "the userspace starts again", nodes.WAIT)
    wait_held(node)


@pytest.mark.parametrize("moment", [prepared, going_down, verifying], ids=lambda moment: moment.__name__)
def test_power_cut(node: Vm, composefs_shelf: RegistryDisk, moment: Moment) -> None:
    """What is staged and prepared is lost with /run, and done again; what was finalized boots."""
    old = node.boots[-1].options
    moment(node, lambda: agent.apply(node, updates.config("b", composefs_shelf.of(B))))
    node.power_cut(nodes.WAIT, complete=False)
    release(node)
    finalized = node.boots[-1].options != old
    if moment is not going_down:
        assert finalized == (moment is verifying), "the finalization alone changes the boot loader"
    updates.wait_updated(node, "b", B, nodes.WAIT)
    assert agent.outcomes(node)[-1] == ("b", "done")
    # Beside the boot after the cut.
    again = node.reboots + node.soft_reboots
    assert again == (0 if finalized else 1)
    assert len(node.boots) == 2 + node.reboots
    check(node)


def test_kill_of_the_agent_after_it_is_prepared(node: Vm, composefs_shelf: RegistryDisk) -> None:
    prepared(node, lambda: agent.apply(node, updates.config("b", composefs_shelf.of(B))))
    node.kill(agent.UNIT)
    updates.wait_updated(node, "b", B, nodes.WAIT)
    assert kinds(agent.history(node)[0]) == ("done", 1, 1)
    assert (len(node.boots), node.soft_reboots) == (1, 1)
    check(node)


def test_a_system_that_another_program_prepared(node: Vm, composefs_shelf: RegistryDisk) -> None:
    """A soft reboot would start it instead of B. It appears after the kind was chosen, right before the reboot."""
    nodes.settings(node, {"reboot": {"soft": "auto", "inhibitor_wait": nodes.WAIT}})
    updates.block_reboot(node)
    agent.apply(node, updates.config("b", composefs_shelf.of(B)))
    agent.wait_phase(node, "Rebooting", timeout=nodes.WAIT)
    node.run(["mkdir", "-p", NEXT_ROOT])
    node.run(["mount", "--bind", "/", NEXT_ROOT])
    updates.unblock_reboot(node)
    updates.wait_updated(node, "b", B, nodes.WAIT)
    entry = agent.history(node)[0]
    assert kinds(entry) == ("done", 1, 0)
    assert "NextRootPrepared" in entry["message"]
    assert (node.reboots, node.soft_reboots) == (1, 0)
    check(node)


@pytest.mark.finding(
    "OS: soft reboots",
    "A locked deployment that another program started all the same is left by a full reboot, and the update continues"
    " in the old one.",
)
@pytest.mark.timeout(nodes.WAIT * 4)
def test_another_program_starts_the_locked_one(node: Vm, composefs_shelf: RegistryDisk) -> None:
    """It runs without the files of the host in /etc, and no command of ostree works, until the agent reboots fully."""
    first, machine = node.boot_id, node.read_text("/etc/machine-id")
    nodes.settings(node, {"reboot": {"soft": "auto", "inhibitor_wait": nodes.WAIT}})
    updates.block_reboot(node)
    agent.apply(node, updates.config("b", composefs_shelf.of(B)))
    agent.wait_phase(node, "Rebooting", reason="RebootBlocked", timeout=nodes.WAIT)
    node.run(["ostree", "admin", "prepare-soft-reboot", "0"], timeout=nodes.WAIT)
    updates.wait_said(node, "is locked and prepared for a soft reboot", nodes.WAIT)
    # What logind starts for `systemctl reboot`, which here waits for the inhibitor as well.
    node.run(["systemctl", "start", "--no-block", "--job-mode=replace-irreversibly", "soft-reboot.target"], check=False)
    updates.wait_updated(node, "b", B, nodes.WAIT * 2)
    assert agent.history(node)[0]["outcome"] == "done"
    assert node.boot_id != first
    assert (node.reboots, node.soft_reboots) == (1, 1), "fully back into A, and softly into B"
    assert node.read_text("/etc/machine-id") == machine
    # The journal of that system is in a directory of its own, with another machine id.
    everything = ["journalctl", "-D", "/var/log/journal", "--merge", "--quiet", "--no-pager", "--output=cat"]
    said = node.run([*everything, f"_SYSTEMD_UNIT={agent.UNIT}"], timeout=nodes.WAIT).stdout
    assert "was started by a soft reboot of another program while it was locked" in said
    check(node)
