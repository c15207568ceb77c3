# SPDX-License-Identifier: Apache-2.0
"""Updates of the OS on a host that bootc updates: everything that pulls and stages is real."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree import small_registry, updates
from integration.hosts.ostree.conftest import SMALL, OstreeHostMaker, Publish
from integration.hosts.ostree.ostree_host import STAGED, OstreeHost
from integration.trees import parts
from integration.trees.image_registry import Published
from integration.trees.tree import A, B, Tree

PULL = "nodeagent-pull.service"
BootcPublish = Callable[[Tree], Published]


@pytest.fixture
def publish_node(publish_bootc: Publish, package: Path) -> BootcPublish:
    """Makes the image of a tree with nodeagent in it."""
    return lambda tree: publish_bootc(tree.having(parts.package(package)))


@pytest.fixture
def node(make_bootc_host: OstreeHostMaker, publish_node: BootcPublish) -> OstreeHost:
    """A host with A, whose current config is `a` with that image."""
    host = make_bootc_host(publish_node(A))
    agent.settings(host, SMALL)
    host.write(agent.POLICY, updates.POLICY)
    host.boot()
    agent.wait_daemon(host)
    agent.apply(host, updates.config("a", publish_node(A)))
    agent.wait_done(host, "a")
    return host


def misbehave(host: OstreeHost, **fault: Any) -> None:
    host.write(f"{parts.REGISTRY_STATE}/{small_registry.FAULTS}", json.dumps(fault))


def test_an_update_and_the_way_back(node: OstreeHost, publish_node: BootcPublish) -> None:
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
    agent.wait_done(node, "b")
    node.run(["nodeagent", "rollback"])
    updates.wait_updated(node, "a", A)
    assert node.reboots == 2
    assert "added=1" not in node.cmdline
    assert not node.exists(STAGED)
