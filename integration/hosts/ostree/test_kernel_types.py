# SPDX-License-Identifier: Apache-2.0
"""Another kernel than the image's, which is packages: some are layered, and those of the image make room."""

from __future__ import annotations

from dataclasses import replace

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree import updates
from integration.hosts.ostree.conftest import OstreeHostMaker, Publish
from integration.hosts.ostree.ostree_host import OstreeHost
from integration.trees.tree import A, B, Tree

PACKAGES = "/usr/share/rpmostreed-standin/packages"
REALTIME = ["kernel-rt-core", "kernel-rt-kvm", "kernel-rt-modules", "kernel-rt-modules-extra"]
OLDER = ["kernel", "kernel-core", "kernel-modules"]  # before RHEL 9.2 one package less, and without the extra modules
NEWER = [*OLDER, "kernel-modules-core"]


def having(tree: Tree, packages: list[str]) -> Tree:
    return replace(tree, files={**tree.files, **{f"{PACKAGES}/{name}": "" for name in packages}})


A_OLDER, B_NEWER = having(A, OLDER), having(B, NEWER)


def node_with_kernel(make_ostree_node: OstreeHostMaker, publish: Publish) -> OstreeHost:
    node = make_ostree_node(A_OLDER, files={agent.POLICY: updates.POLICY})
    agent.apply(node, updates.config("a", publish(A_OLDER)))
    agent.wait_done(node, "a")
    return node


def packages(node: OstreeHost) -> list[str]:
    return node.run(["ls", PACKAGES]).stdout.split()


@pytest.mark.slow
def test_realtime_and_back(make_ostree_node: OstreeHostMaker, publish: Publish) -> None:
    node = node_with_kernel(make_ostree_node, publish)
    assert packages(node) == OLDER
    updates.block_reboot(node)
    agent.apply(node, updates.config("rt", publish(A_OLDER), kernelType="realtime", kernelArguments=["nosmt"]))
    updates.wait_blocked(node)
    assert packages(node) == OLDER, "nothing changes before the boot"
    updates.unblock_reboot(node)
    updates.wait_updated(node, "rt", A_OLDER)
    assert (packages(node), node.reboots) == (REALTIME, 1)
    assert "nosmt" in node.cmdline

    # It stays with another image, which has a part more to be left out.
    agent.apply(node, updates.config("rt-b", publish(B_NEWER), kernelType="realtime", kernelArguments=["nosmt"]))
    updates.wait_updated(node, "rt-b", B_NEWER)
    assert (packages(node), node.reboots) == (REALTIME, 2)
    node.run(["nodeagent", "verify"])

    # With an image that has less, and an extension beside it.
    agent.apply(node, updates.config("rt-a", publish(A_OLDER), kernelType="realtime", extensions=["usbguard"]))
    updates.wait_updated(node, "rt-a", A_OLDER)
    assert (packages(node), node.reboots) == ([*REALTIME, "usbguard"], 3)

    agent.apply(node, updates.config("default", publish(A_OLDER), extensions=["usbguard"]))
    updates.wait_updated(node, "default", A_OLDER)
    assert (packages(node), node.reboots) == ([*OLDER, "usbguard"], 4)
    node.run(["nodeagent", "verify"])


def test_rolled_back_manually(make_ostree_node: OstreeHostMaker, publish: Publish) -> None:
    """Kernel and arguments change together, in one step each way."""
    node = node_with_kernel(make_ostree_node, publish)
    agent.apply(node, updates.config("rt-b", publish(B_NEWER), kernelType="realtime"))
    updates.wait_updated(node, "rt-b", B_NEWER)
    assert packages(node) == REALTIME
    node.run(["nodeagent", "rollback"])
    updates.wait_current(node, "a")
    updates.check(node, "a", A_OLDER)
    assert (packages(node), node.reboots) == (OLDER, 2)


def test_a_power_cut_before_the_other_kernel_boots(make_ostree_node: OstreeHostMaker, publish: Publish) -> None:
    node = node_with_kernel(make_ostree_node, publish)
    updates.block_reboot(node)
    agent.apply(node, updates.config("rt", publish(A_OLDER), kernelType="realtime"))
    updates.wait_blocked(node)
    node.power_cut()
    updates.wait_updated(node, "rt", A_OLDER)
    assert packages(node) == REALTIME


def test_an_image_without_a_kernel_that_is_known(node_at_a: OstreeHost, publish: Publish) -> None:
    agent.apply(node_at_a, updates.config("rt", publish(A), kernelType="realtime"))
    now = agent.wait_phase(node_at_a, "Degraded")
    assert (now["reason"], now["current"]) == ("PackageUnavailable", "a")
    assert 'Package "kernel-core" not found' in now["message"]
    assert node_at_a.reboots == 0


def test_another_extensions_image_alone(node_at_a: OstreeHost, publish: Publish) -> None:
    """Each release has another one. It is read only when packages change, so it is no reason for an update."""
    node, image = node_at_a, publish(A)
    agent.apply(node, updates.config("e", image, extensions=["usbguard"]))
    updates.wait_updated(node, "e", A)
    assert node.reboots == 1
    extensions = f"quay.io/example/extensions@sha256:{'1' * 64}"
    agent.apply(node, updates.config("e2", image, extensions=["usbguard"], baseOSExtensionsContainerImage=extensions))
    agent.wait_done(node, "e2")
    assert (node.reboots, packages(node)) == (1, ["usbguard"])
    # This host has no program to pull it with.
    wanted = ["usbguard", "sysstat"]
    agent.apply(node, updates.config("e3", image, extensions=wanted, baseOSExtensionsContainerImage=extensions))
    now = agent.wait_phase(node, "Degraded")
    assert (now["reason"], now["current"], node.reboots) == ("PackageUnavailable", "e2", 1)
