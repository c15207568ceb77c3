# SPDX-License-Identifier: Apache-2.0
"""Kernels that do not get as far as userspace, on a machine that GRUB boots: the old deployment comes back.

The watchdog is the harness: it resets a machine whose initramfs hangs, as a hardware watchdog that runs since the
firmware does, or an operator. GRUB, its script, its variables, the disk and the kernels are real.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import required
from integration.hosts.ostree import updates
from integration.hosts.ostree.ostree_host import deployments_of
from integration.hosts.snapshot import Entry, difference
from integration.hosts.vm import grub, nodes
from integration.hosts.vm.conftest import BackEnd
from integration.hosts.vm.grub import GrubVm
from integration.hosts.vm.registry_disk import RegistryDisk
from integration.trees.tree import A, B, Tree

HANGS = "the initramfs hangs"
# Three boots of the new deployment, and one of the old.
COUNTED_DOWN = [(0, "2"), (0, "1"), (0, "0"), (1, "-1")]


class Trees(NamedTuple):
    programs: Path  # GRUB
    old: Tree
    new: Tree
    panics: Tree
    hangs: Tree


pytestmark = [pytest.mark.long, pytest.mark.timeout(nodes.WAIT * 6)]


@pytest.fixture(scope="session")
def trees() -> Trees:
    programs = required(grub.programs)
    old, new = A.having(grub.part(programs)), B.having(grub.part(programs))
    panics = replace(B, version="41.4.0").having(grub.broken("the initramfs ends", grub.EXIT))
    hangs = replace(B, version="41.5.0").having(grub.broken(HANGS, grub.WAIT))
    return Trees(programs, old, new, panics, hangs)


@pytest.fixture
def shelf(trees: Trees, back_end: BackEnd) -> RegistryDisk:
    return back_end.make_registry(trees.old, trees.new, trees.panics, trees.hangs)


@pytest.fixture
def node(trees: Trees, back_end: BackEnd, shelf: RegistryDisk) -> GrubVm:
    made = back_end.make_node(media=shelf, tree=trees.old, kind=functools.partial(GrubVm, grub=trees.programs))
    assert isinstance(made, GrubVm)
    grub.install(made)
    return made


def test_a_kernel_that_panics_and_one_that_starts(node: GrubVm, shelf: RegistryDisk, trees: Trees) -> None:
    before = agent.managed(node)
    agent.apply(node, updates.config("panics", shelf.of(trees.panics)))
    came_back(node, "panics", before)
    # The last boot is the one after the files were restored, which is not counted.
    assert node.tried() == [*COUNTED_DOWN, (0, "")]

    tried = len(node.tried())
    agent.apply(node, updates.config("b", shelf.of(trees.new)))
    updates.wait_updated(node, "b", trees.new, nodes.WAIT)
    assert node.tried()[tried:] == [(0, "2")]
    assert grub.variables(node) == {"boot_success": "1"}


@pytest.mark.parametrize("back_end", ["rpm-ostree"], indirect=True)
def test_a_kernel_that_hangs(node: GrubVm, shelf: RegistryDisk, trees: Trees) -> None:
    before = agent.managed(node)
    agent.apply(node, updates.config("hangs", shelf.of(trees.hangs)))
    for number in range(1, 4):
        node.wait_for(lambda: node.console().count(HANGS) == number, f"hang {number}", nodes.WAIT)  # noqa: B023
        node.press_reset()
    came_back(node, "hangs", before)
    assert node.tried() == [*COUNTED_DOWN, (0, "")]


def came_back(node: GrubVm, name: str, before: Mapping[str, Entry]) -> None:
    end = agent.wait_outcome(node, name, nodes.WAIT * 2)
    assert (end["outcome"], end["reason"]) == ("reverted", "BootFailed")
    updates.check(node, "a", A)
    assert difference(before, agent.managed(node)) == []
    assert len(deployments_of(node)) == 1
    # GRUB takes the mark of each boot away, and the agent ended the count in the boot before.
    assert grub.variables(node) == {"boot_success": "0"}
