# SPDX-License-Identifier: Apache-2.0
"""A kernel that the bootloader refuses, on a machine with Secure Boot: rejected before the reboot, not dead after it.

Firmware, keys, shim, GRUB, kernels and the variables that the agent reads are real; bootupctl is a stand-in that
reports what is installed.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import required
from integration.hosts.container.test_bootloader import NEW, OLD
from integration.hosts.errors import HostGone
from integration.hosts.ostree import updates
from integration.hosts.vm import firmware, nodes
from integration.hosts.vm.conftest import VmMaker
from integration.hosts.vm.firmware import REFUSED, STOPPED, SecureVm
from integration.hosts.vm.registry_disk import RegistryDisk
from integration.trees.tree import A, B
from nodeagent.features.bootloader.reasons import BootloaderReason
from nodeagent.update.ports.events import Warned

SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


@pytest.mark.long
@pytest.mark.timeout(nodes.WAIT * 6)
def test_a_kernel_of_an_unknown_signer(make_node: VmMaker, make_registry: Callable[..., RegistryDisk]) -> None:
    programs = required(firmware.programs)
    old, new = A.having(firmware.bootupd(OLD, OLD)), B.having(firmware.bootupd(NEW, OLD))
    foreign = replace(B, version="41.6.0").having(firmware.bootupd(NEW, OLD), firmware.foreign_kernel())
    shelf = make_registry(old, new, foreign)
    node = make_node(media=shelf, tree=old, kind=functools.partial(SecureVm, firmware=programs))
    assert isinstance(node, SecureVm)
    with node.rebooting(nodes.WAIT):
        node.run(["systemctl", "reboot"])
    agent.wait_daemon(node, nodes.WAIT)
    assert "GRUB: entry 0." in node.console()
    assert node.read(SECURE_BOOT)[4] == 1

    # Rejected, and nothing was disrupted.
    config = updates.config("foreign", shelf.of(foreign))
    agent.apply(node, config)
    refused = agent.wait_outcome(node, "foreign", nodes.WAIT)
    assert (refused["outcome"], refused["reason"]) == ("refused", BootloaderReason.BOOTLOADER_TOO_OLD)
    assert updates.shown(agent.status(node)) == [f"{foreign.version} staged locked", f"{A.version} booted"]
    assert (node.reboots, node.read_text(updates.MINE)) == (1, "mine of a\n")
    found = json.loads(node.run(["nodeagent", "plan", "--json", "-"], stdin=config, timeout=nodes.WAIT).stdout)
    about = found["bootloader"]
    assert (about["secure_boot"], about["state"], about["kernel"]) == (True, "older", "refused")
    assert about["then"] == "refuse"

    # A kernel with the signature of the running one is not rejected, though that bootloader is older as well.
    agent.apply(node, updates.config("b", shelf.of(new)))
    updates.wait_updated(node, "b", new, nodes.WAIT)
    assert node.reboots == 2
    assert updates.logged(node, Warned, BootloaderReason.BOOTLOADER_OLDER)
    assert node.read(SECURE_BOOT)[4] == 1

    # What the check prevents.
    nodes.settings(node, {"bootloader": {"update": "never"}})
    boots = len(node.boots)
    agent.apply(node, updates.config("unchecked", shelf.of(foreign)))
    node.wait_for(lambda: REFUSED.search(node.console()), "shim refuses the kernel", nodes.WAIT)
    node.wait_for(lambda: STOPPED in node.console(), "GRUB gives up", nodes.WAIT)
    assert (node.running, len(node.boots)) == (True, boots)
    with pytest.raises(HostGone):
        node.run(["true"])
