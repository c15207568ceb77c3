# SPDX-License-Identifier: Apache-2.0
"""A host that moves from an image with rpm-ostree to one without it: one back end ends what the other has begun."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts import overlay
from integration.hosts.container import container_host
from integration.hosts.container.conftest import finish
from integration.hosts.locks import claim
from integration.hosts.ostree import updates
from integration.hosts.ostree.conftest import IMAGE, REGISTRY, SMALL
from integration.hosts.ostree.disk import OSNAME
from integration.hosts.ostree.ostree_host import STAGED, OstreeHost
from integration.trees import parts
from integration.trees.encapsulated import Encapsulated
from integration.trees.image_registry import Published, Registry
from integration.trees.ostree_repo import OstreeRepo
from integration.trees.tree import A, B, Part, Tree
from nodeagent.update.ports.events import DeploymentsServed

C = Tree("41.7.0", {**B.files, "/usr/share/third": "third\n"}, B.units)
# With the agent, and nothing that serves deployments.
ALONE = Tree("41.8.0", B.files, B.units)


@pytest.fixture
def folder(bootc_repo: OstreeRepo) -> Iterator[Registry]:
    """The registry of the stand-in of rpm-ostreed, with trees of hosts with bootc."""
    directory = container_host.hosts_directory() / f"na-registry-{secrets.token_hex(4)}"
    with claim(directory):
        yield Registry(directory, bootc_repo)
        overlay.remove_tree(directory)


class Move:
    """Images of a host that moves, which is installed from `a` and is made by `start`."""

    def __init__(self, repo: OstreeRepo, images: Encapsulated, folder: Registry, package: Path) -> None:
        self._repo, self._images, self._folder = repo, images, folder
        self._common = (parts.package(package), parts.bootc_host())
        self._with_daemon = (*self._common, parts.stand_in({"REGISTRY": REGISTRY}))
        self.a = self._by_daemon(A, self._with_daemon)
        self.b = self._by_daemon(B, self._common)
        self._alone = (parts.package(package),)
        self.by_daemon_alone = self._by_daemon(ALONE, self._alone)

    def _by_daemon(self, tree: Tree, more: Sequence[Part]) -> Published:
        return self._folder.publish(self._repo.commit(tree.having(*more)), IMAGE, tree.version)

    def by_libostree(self, tree: Tree, *, daemon: bool) -> Published:
        more = self._with_daemon if daemon else self._common
        return self._images.publish(self._repo.commit(tree.having(*more)), IMAGE)

    def by_libostree_alone(self) -> Published:
        return self._images.publish(self._repo.commit(ALONE.having(*self._alone)), IMAGE)

    def start(self) -> OstreeHost:
        shares = {REGISTRY: self._folder.folder, parts.SERVED: self._images.folder}
        node = OstreeHost(self._repo, self._folder.pulled(self.a), read_only=shares)
        agent.settings(node, SMALL)
        node.write(agent.POLICY, updates.POLICY)
        return node


@pytest.fixture
def move(bootc_repo: OstreeRepo, bootc_images: Encapsulated, folder: Registry, package: Path) -> Move:
    return Move(bootc_repo, bootc_images, folder, package)


@pytest.fixture
def node(request: pytest.FixtureRequest, move: Move) -> Iterator[OstreeHost]:
    """With rpm-ostree, and the image of A."""
    host = move.start()
    try:
        host.boot()
        agent.wait_daemon(host)
        agent.apply(host, updates.config("a", move.a))
        agent.wait_done(host, "a")
        yield host
    finally:
        finish(host, request.node)


def has_daemon(node: OstreeHost) -> bool:
    return node.run(["systemctl", "show", "--value", "-p", "LoadState", "rpm-ostreed"]).stdout != "not-found\n"


@pytest.mark.slow
def test_from_rpm_ostree_to_bootc_and_on(node: OstreeHost, move: Move) -> None:
    # Nothing in the boot of this one could verify it.
    agent.apply(node, updates.config("alone", move.by_daemon_alone))
    refused(node, "bootc, rpm-ostree", "ImageUnserved", current="a", reboots=0)
    # rpm-ostree stages it, and there is none in the boot that verifies it.
    updates.apply_again(node, updates.config("b", move.b))
    updates.wait_updated(node, "b", B)
    assert not has_daemon(node)
    (served,) = updates.logged(node, DeploymentsServed)
    assert served["MESSAGE"] == "bootc serves the deployments from now on: rpm-ostree cannot any more"
    agent.apply(node, updates.config("alone", move.by_libostree_alone()))
    refused(node, "bootc, rpm-ostree", "ImageUnserved", current="b", reboots=1)
    # What serves the host now does the next update, and goes on beside rpm-ostree.
    c = move.by_libostree(C, daemon=True)
    updates.apply_again(node, updates.config("c", c, kernelArguments=["added=1"]))
    updates.wait_updated(node, "c", C)
    agent.apply(node, updates.config("d", c))
    updates.wait_updated(node, "d", C)
    assert "added=1" not in node.cmdline
    assert len(updates.logged(node, DeploymentsServed)) == 1
    assert node.reboots == 3


@pytest.mark.slow
def test_what_rpm_ostree_added_does_not_move(node: OstreeHost, move: Move) -> None:
    """Nothing would keep it in the next update, so the image is refused, and nothing boots."""
    extensions: dict[str, Any] = {"extensions": ["usbguard"], "kernelArguments": ["added=1"]}
    agent.apply(node, updates.config("e", move.a, **extensions))
    updates.wait_updated(node, "e", A)
    agent.apply(node, updates.config("b", move.b, **extensions))
    refused(node, "[packages] requested=usbguard")

    # An admin's initramfs, as the daemon notes it. Each of its deployments inherits it.
    booted = node.deployments()[0]
    origin = f"/ostree/deploy/{OSNAME}/deploy/{booted.checksum}.{booted.serial}.origin"
    before = node.read_text(origin)
    replace_origin(node, origin, f"{before}\n[rpmostree]\nregenerate-initramfs=true\n")
    updates.apply_again(node, updates.config("b2", move.b, kernelArguments=["added=1"]))
    refused(node, "[rpmostree] regenerate-initramfs=true")
    replace_origin(node, origin, before)

    # Without additions it moves, with the arguments of the kernel, and updates as such a host.
    updates.apply_again(node, updates.config("b3", move.b, kernelArguments=["added=1"]))
    updates.wait_updated(node, "b3", B)
    assert not has_daemon(node)
    assert "added=1" in node.cmdline
    agent.apply(node, updates.config("c", move.by_libostree(C, daemon=False)))
    updates.wait_updated(node, "c", C)
    assert "added=1" not in node.cmdline
    assert node.reboots == 3


def refused(
    node: OstreeHost, what: str, reason: str = "ImageWithoutDaemon", *, current: str = "e", reboots: int = 1
) -> None:
    now = updates.wait_degraded(node, reason)
    assert what in now["message"]
    assert now["current"] == current
    assert not node.exists(STAGED)
    assert node.reboots == reboots


def replace_origin(node: OstreeHost, path: str, content: str) -> None:
    """Write a file of /sysroot, which is read-only elsewhere. The daemon has read the old one."""
    script = 'mount -o remount,rw /sysroot && printf %s "$2" >"$1"'
    node.run(["unshare", "--mount", "sh", "-c", script, "sh", path, content])
    node.run(["systemctl", "restart", "rpm-ostreed"])
