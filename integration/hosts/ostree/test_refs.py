# SPDX-License-Identifier: Apache-2.0
"""An OS from a branch of an ostree remote, at a commit: to there from an image, along the branch, and back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.nodeagent_client import UnitSpec
from integration.hosts.ostree import updates
from integration.hosts.ostree.conftest import REGISTRY, OstreeHostMaker, Publish
from integration.hosts.ostree.ostree_host import OstreeHost
from integration.trees.image_registry import Registry
from integration.trees.ostree_repo import OstreeRepo
from integration.trees.tree import BAD, BAD_UNIT, A, B, Tree

PACKAGES = "/usr/share/rpmostreed-standin/packages"
# The repository below the registry is an ordinary one, too.
REMOTE = {"/etc/ostree/remotes.d/os.conf": f'[remote "os"]\nurl=file://{REGISTRY}/repo\ngpg-verify=false\n'}


@pytest.fixture
def node(make_node_at_a: OstreeHostMaker) -> OstreeHost:
    return make_node_at_a(files=REMOTE)


@pytest.fixture
def branched(ostree_repo: OstreeRepo, registry: Registry, publish: Publish) -> Callable[[Tree], str]:
    """Makes the commit of a tree that belongs to the branches os/stable and os/testing of the remote."""

    def commit(tree: Tree) -> str:
        source = publish(tree).commit.checksum
        about = ("--bind-ref=os/testing", "--bootable", f"--add-metadata-string=version={tree.version}")
        with ostree_repo.toolbox(registry.folder) as tools:
            repo = f"--repo={registry.folder / 'repo'}"
            return tools.said("ostree", repo, "commit", "--branch=os/stable", *about, f"--tree=ref={source}")

    return commit


def at(branch: str, commit: str) -> str:
    return f"ostree://os/os/{branch}@{commit}"


def test_from_an_image_along_branches_and_back(
    node: OstreeHost, publish: Publish, branched: Callable[[Tree], str]
) -> None:
    a, b = branched(A), branched(B)
    agent.apply(node, updates.config("b", at("stable", b), kernelArguments=["nosmt"]))
    updates.wait_updated(node, "b", B)
    assert (node.booted, node.reboots) == (b, 1)
    assert "nosmt" in node.cmdline

    # An older commit of the same branch, which is not what the branch is at.
    agent.apply(node, updates.config("a", at("stable", a), kernelArguments=["nosmt"]))
    updates.wait_updated(node, "a", A)
    assert (node.booted, node.reboots) == (a, 2)

    # The same commit by another branch is the OS that runs: nothing is to be done for it.
    agent.apply(node, updates.config("same", at("testing", a), kernelArguments=["nosmt"]))
    agent.wait_done(node, "same")
    assert node.reboots == 2

    # With packages on it, the commit below them is what counts.
    agent.apply(node, updates.config("e", at("testing", b), extensions=["usbguard"]))
    updates.wait_updated(node, "e", B)
    assert node.booted != b
    assert (node.run(["ls", PACKAGES]).stdout.split(), node.reboots) == (["usbguard"], 3)
    assert "nosmt" not in node.cmdline
    node.run(["nodeagent", "verify"])

    agent.apply(node, updates.config("image", publish(A)))
    updates.wait_updated(node, "image", A)
    assert node.reboots == 4


def degraded(name: str, now: dict[str, Any]) -> bool:
    return (now["phase"], now["desired"]) == ("Degraded", name)


def test_what_the_remote_has_not(node: OstreeHost, publish: Publish, branched: Callable[[Tree], str]) -> None:
    """No such commit, no such remote, and a commit that belongs to another branch."""
    branched(B)
    wrong = {
        "commit": at("stable", "0" * 64),
        "remote": f"ostree://other/os/stable@{'0' * 64}",
        "branch": at("stable", publish(B).commit.checksum),
    }
    for name, image in wrong.items():
        agent.apply(node, updates.config(name, image))
        now = updates.wait_status(node, name, functools.partial(degraded, name))
        assert (now["reason"], now["current"]) == ("ImageNotFound", "a")
        assert updates.shown(now) == [f"{A.version} booted"]
    assert node.reboots == 0


def test_a_bad_commit_is_rolled_back_to_the_image(
    make_node_at_a: OstreeHostMaker, branched: Callable[[Tree], str]
) -> None:
    node = make_node_at_a(files=REMOTE, settings={"verify": {"timeout": 4}})
    units = {updates.MINE_UNIT: UnitSpec(updates.UNIT, enabled=True), BAD_UNIT: UnitSpec(enabled=True)}
    files = {updates.MINE: "mine of bad\n"}
    agent.apply(node, agent.machine_config("bad", files=files, units=units, osImageURL=at("stable", branched(BAD))))
    ended = agent.wait_outcome(node, "bad", updates.WAIT)
    assert (ended["outcome"], ended["reason"]) == ("reverted", "UnitUnhealthy")
    updates.check(node, "a", A)
