# SPDX-License-Identifier: Apache-2.0
"""A booted machine to measure on, from the caches of the rings: the same system disk as the tests of the vm ring."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from integration.bench.fence import source
from integration.bench.fence.source import Source
from integration.demo import Story, package_of
from integration.hosts.vm import guest, image, live, registry_disk, virtual_machine, vm_requirements
from integration.hosts.vm.virtual_machine import Vm
from integration.trees import parts
from integration.trees.base import Flavour
from integration.trees.ostree_repo import OstreeRepo
from integration.trees.tree import A

__all__ = ["booted", "say"]

JOURNAL = 512
"""MiB of ext4's journal: what mke2fs makes on disks from 64 to 128 GB, the least that nodes have. By the size of this
machine's it would be 64, in which not more than two hundred writes of throttled data can be under way: then every task
who writes waits for them."""


def say(text: str) -> None:
    """To the person who waits; the result alone goes to the standard output."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def booted(filesystem: str, rounds: int) -> Iterator[tuple[Vm, Source]]:
    """Raises Unavailable where no machine can be booted."""
    vm_requirements.ensure(say)
    with contextlib.redirect_stdout(sys.stderr):
        tarball: Path = package_of(Story())
    virtual_machine.sweep()
    with contextlib.ExitStack() as stack:
        ostree_repo = OstreeRepo(Flavour.MACHINE, say)
        stack.callback(ostree_repo.close)
        installed = (guest.part(), parts.package(tarball), parts.stand_in({"REGISTRY": registry_disk.IN_GUEST}))
        commit = ostree_repo.commit(A.having(*installed))
        # The staged deployment has no nodeagent: it is never booted, so it can be shared by all versions.
        brought = source.make(ostree_repo, ostree_repo.commit(A.having(guest.part())), say, rounds)
        stack.callback(brought.disk.close)
        disk = image.system(ostree_repo, commit, say, filesystem=filesystem, journal=JOURNAL)
        stack.callback(disk.close)
        (kernel,) = (kernel for path in ostree_repo.image.paths for kernel in path.glob("usr/lib/modules/*/vmlinuz"))
        frozen = live.frozen(disk, say, media=brought.disk, accel=vm_requirements.accelerator(kernel))
        stack.callback(frozen.close)
        vm = stack.enter_context(frozen.vm())
        vm.boot()
        yield vm, brought
