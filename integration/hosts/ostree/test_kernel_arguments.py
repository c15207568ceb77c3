# SPDX-License-Identifier: Apache-2.0
"""Kernel arguments and packages: with an update of the OS, without one, and after a second try."""

from __future__ import annotations

import json

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree import updates
from integration.hosts.ostree.conftest import Publish
from integration.hosts.ostree.disk import KARGS
from integration.hosts.ostree.ostree_host import OstreeHost
from integration.trees.tree import A, B, Tree

LAYERED = "/usr/share/rpmostreed-standin/packages"


def arguments(node: OstreeHost) -> list[str]:
    return [token for token in node.cmdline if not token.startswith("ostree=")]


def test_alone_then_with_an_os_then_gone(node_at_a: OstreeHost, publish: Publish) -> None:
    node = node_at_a
    agent.apply(node, updates.config("k", publish(A), kernelArguments=["nosmt", "audit=0"]))
    updates.wait_updated(node, "k", A)
    assert (arguments(node), node.reboots) == ([*KARGS, "nosmt", "audit=0"], 1)

    agent.apply(node, updates.config("kb", publish(B), kernelArguments=["nosmt", "audit=1"]))
    updates.wait_updated(node, "kb", B)
    assert (arguments(node), node.reboots) == ([*KARGS, "nosmt", "audit=1"], 2)

    agent.apply(node, updates.config("b", publish(B)))
    updates.wait_updated(node, "b", B)
    assert (arguments(node), node.reboots) == ([*KARGS], 3)


def test_a_default_argument_is_taken_away_and_given_back(node_at_a: OstreeHost, publish: Publish) -> None:
    """With shouldNotExist of the Ignition config: also in the next image, and until no config takes it away."""
    node = node_at_a

    def without(name: str, tree: Tree) -> str:
        document = json.loads(updates.config(name, publish(tree)))
        document["spec"]["config"]["kernelArguments"] = {"shouldExist": ["nosmt"], "shouldNotExist": ["quiet"]}
        return json.dumps(document)

    rest = [token for token in KARGS if token != "quiet"]
    agent.apply(node, without("less", A))
    updates.wait_updated(node, "less", A)
    assert (arguments(node), node.reboots) == ([*rest, "nosmt"], 1)
    node.run(["nodeagent", "verify"])

    agent.apply(node, without("less-b", B))
    updates.wait_updated(node, "less-b", B)
    assert (arguments(node), node.reboots) == ([*rest, "nosmt"], 2)

    agent.apply(node, updates.config("b", publish(B)))
    updates.wait_updated(node, "b", B)
    assert (sorted(arguments(node)), node.reboots) == (sorted(KARGS), 3)


def test_a_retry_leaves_no_duplicate(node_at_a: OstreeHost, publish: Publish) -> None:
    """The image is staged when rpm-ostreed dies; everything is when the power fails; then both are done again."""
    node = node_at_a
    updates.inject_faults(node, {"at": "method:KernelArgs", "do": "die", "times": 1})
    updates.block_reboot(node)
    agent.apply(node, updates.config("kb", publish(B), kernelArguments=["nosmt", "audit=0"]))
    updates.wait_blocked(node)
    node.power_cut()
    updates.wait_updated(node, "kb", B)
    assert (arguments(node), node.reboots) == ([*KARGS, "nosmt", "audit=0"], 1)


def test_extensions_come_and_go(node_at_a: OstreeHost, publish: Publish) -> None:
    node = node_at_a
    agent.apply(node, updates.config("e", publish(A), extensions=["usbguard", "kerberos"]))
    updates.wait_updated(node, "e", A)
    assert node.run(["ls", LAYERED]).stdout.split() == ["krb5-workstation", "libkadm5", "usbguard"]

    # They stay with another image, and what is not wanted any more goes with the same reboot.
    agent.apply(node, updates.config("eb", publish(B), extensions=["usbguard"], kernelArguments=["nosmt"]))
    updates.wait_updated(node, "eb", B)
    assert node.run(["ls", LAYERED]).stdout.split() == ["usbguard"]
    assert "nosmt" in node.cmdline
    assert node.reboots == 2


def test_a_package_that_does_not_exist(node_at_a: OstreeHost, publish: Publish) -> None:
    node = node_at_a
    updates.inject_faults(node, {"at": "packages", "do": "fail", "message": "Packages not found: nonsense"})
    agent.apply(node, updates.config("e", publish(A), extensions=["nonsense"]))
    now = agent.wait_phase(node, "Degraded")
    assert (now["reason"], now["current"]) == ("PackageUnavailable", "a")
    assert updates.shown(now) == [f"{A.version} booted"]
    assert node.reboots == 0
