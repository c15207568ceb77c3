# SPDX-License-Identifier: Apache-2.0
"""A host that moves from an image with rpm-ostree to one without it: one back end ends what the other has begun."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts import overlay
from integration.hosts.container import container_host
from integration.hosts.container.conftest import finish
from integration.hosts.locks import claim
from integration.hosts.ostree import updates
from integration.hosts.ostree.conftest import IMAGE, REGISTRY, SMALL
from integration.hosts.ostree.ostree_host import OstreeHost
from integration.trees import parts
from integration.trees.encapsulated import Encapsulated
from integration.trees.image_registry import Published, Registry
from integration.trees.ostree_repo import OstreeRepo
from integration.trees.tree import A, B, Part, Tree
from nodeagent.update.ports.events import DeploymentsServed

C = Tree("41.7.0", {**B.files, "/usr/share/third": "third\n"}, B.units)


@pytest.fixture
def folder(bootc_repo: OstreeRepo) -> Iterator[Registry]:
    """The registry of the stand-in of rpm-ostreed, with trees of hosts with bootc."""
    directory = container_host.hosts_directory() / f"na-registry-{secrets.token_hex(4)}"
    with claim(directory):
        yield Registry(directory, bootc_repo)
        overlay.remove_tree(directory)


@pytest.mark.slow
def test_from_rpm_ostree_to_bootc_and_on(
    request: pytest.FixtureRequest,
    bootc_repo: OstreeRepo,
    bootc_images: Encapsulated,
    folder: Registry,
    package: Path,
) -> None:
    common = (parts.package(package), parts.bootc_host())
    with_daemon = (*common, parts.stand_in({"REGISTRY": REGISTRY}))

    def by_daemon(tree: Tree, *more: Part) -> Published:
        return folder.publish(bootc_repo.commit(tree.having(*more)), IMAGE, tree.version)

    a, b = by_daemon(A, *with_daemon), by_daemon(B, *common)
    c = bootc_images.publish(bootc_repo.commit(C.having(*with_daemon)), IMAGE)
    shares = {REGISTRY: folder.folder, parts.SERVED: bootc_images.folder}
    node = OstreeHost(bootc_repo, folder.pulled(a), read_only=shares)
    try:
        agent.settings(node, SMALL)
        node.write(agent.POLICY, updates.POLICY)
        node.boot()
        agent.wait_daemon(node)
        agent.apply(node, updates.config("a", a))
        agent.wait_done(node, "a")
        # rpm-ostree stages it, and there is none in the boot that verifies it.
        agent.apply(node, updates.config("b", b))
        updates.wait_updated(node, "b", B)
        assert node.run(["systemctl", "show", "--value", "-p", "LoadState", "rpm-ostreed"]).stdout == "not-found\n"
        (served,) = updates.logged(node, DeploymentsServed)
        assert served["MESSAGE"] == "bootc serves the deployments from now on: rpm-ostree cannot any more"
        # What serves the host now does the next update, and goes on beside rpm-ostree.
        agent.apply(node, updates.config("c", c, kernelArguments=["added=1"]))
        updates.wait_updated(node, "c", C)
        agent.apply(node, updates.config("d", c))
        updates.wait_updated(node, "d", C)
        assert "added=1" not in node.cmdline
        assert len(updates.logged(node, DeploymentsServed)) == 1
        assert node.reboots == 3
    finally:
        finish(node, request.node)
