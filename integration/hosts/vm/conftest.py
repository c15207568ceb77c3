# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the vm ring: disks and frozen guests once, a fresh machine for every test that asks for one.

`vm` has the tree A booted, with nodeagent and the stand-in of rpm-ostreed in it, and goes on from a frozen guest, so it
is there in seconds. For another tree or root filesystem use `make_vm`.

`node` was installed from the image of A, and has `a` as its current config; `shelf` is the registry on its second disk:

    def test_an_update(node: Vm, shelf: RegistryDisk) -> None:
        agent.apply(node, updates.config("b", shelf.of(B)))

Where no machine can be booted the ring is skipped with the reason; with CI set in the environment that is a failure.
Consoles and journals are kept when a test fails, and the report says where.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from integration.hosts.container.conftest import package, pytest_runtest_makereport, required, say
from integration.hosts.errors import Unavailable
from integration.hosts.vm import (
    bootc_disk,
    enforcing,
    guest,
    image,
    live,
    nodes,
    registry_disk,
    virtual_machine,
    vm_requirements,
)
from integration.hosts.vm.image import DiskImage
from integration.hosts.vm.registry_disk import RegistryDisk
from integration.hosts.vm.virtual_machine import Vm
from integration.trees import parts
from integration.trees.base import Flavour
from integration.trees.bootc_machine import BootcMachineRepo
from integration.trees.enforcing import EnforcingRepo
from integration.trees.ostree_container import OSTREE_CONTAINER
from integration.trees.ostree_repo import OstreeRepo
from integration.trees.tree import BAD, A, B, Tree

__all__ = ["package", "pytest_runtest_makereport", "say"]

HERE = Path(__file__).parent
VmMaker = Callable[..., Vm]


class BackEnd(NamedTuple):
    make_registry: Callable[..., RegistryDisk]
    make_node: VmMaker


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.vm)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TEST_TIMEOUT))


TEST_TIMEOUT = 2400  # seconds: the first test of a run makes the disk and boots it, without KVM, and beside others


@pytest.fixture(scope="session")
def vm_ostree_repo(say: Callable[[str], None]) -> Iterator[OstreeRepo]:
    required(lambda: vm_requirements.ensure(say))
    grown = required(lambda: OstreeRepo(Flavour.MACHINE, say))
    virtual_machine.sweep()
    yield grown
    grown.close()


@pytest.fixture(scope="session")
def vm_tree(package: Path) -> Callable[[Tree], Tree]:
    """A tree with what a virtual machine needs, nodeagent's package and the stand-in of rpm-ostreed."""
    installed = (guest.part(), parts.package(package), parts.stand_in({"REGISTRY": registry_disk.IN_GUEST}))
    return lambda tree: tree.having(*installed)


@pytest.fixture(scope="session")
def accel(vm_ostree_repo: OstreeRepo) -> str:
    return nodes.accelerator(vm_ostree_repo)


@pytest.fixture(scope="session")
def make_image(
    vm_ostree_repo: OstreeRepo, vm_tree: Callable[[Tree], Tree], say: Callable[[str], None]
) -> Iterator[Any]:
    """Makes the disk of a tree; arguments as image.system()."""
    made: list[DiskImage] = []

    def make(tree: Tree = A, **options: Any) -> DiskImage:
        commit = vm_ostree_repo.commit(vm_tree(tree))
        made.append(required(lambda: image.system(vm_ostree_repo, commit, say, **options)))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(scope="session")
def make_registry(vm_ostree_repo: OstreeRepo, vm_tree: Callable[[Tree], Tree]) -> Iterator[Callable[..., RegistryDisk]]:
    """Makes the second disk, with an image of each tree: `make_vm(media=make_registry(B).disk)`."""
    made: list[RegistryDisk] = []

    def make(*trees: Tree) -> RegistryDisk:
        made.append(registry_disk.make(vm_ostree_repo, [vm_tree(tree) for tree in trees]))
        return made[-1]

    yield make
    for each in made:
        each.disk.close()


@pytest.fixture
def make_vm(
    request: pytest.FixtureRequest, make_image: Callable[..., DiskImage], accel: str, say: Callable[[str], None]
) -> Iterator[VmMaker]:
    """Makes machines, off, with a tree on `filesystem`. Unless `cold`, the first boot() goes on from a frozen guest.

    `kind` is another class of machine. The rest of the arguments goes to it (`media`, and for cold ones `memory` and
    `cpus`).
    """
    with contextlib.ExitStack() as stack:

        def make(
            tree: Tree = A,
            *,
            filesystem: str = "ext4",
            cold: bool = False,
            kind: Callable[..., Vm] = Vm,
            **options: Any,
        ) -> Vm:
            disk = make_image(tree, filesystem=filesystem)
            if cold:
                vm = kind(disk, accel=accel, **options)
            else:
                frozen = live.frozen(disk, say, accel=accel, **options)
                stack.callback(frozen.close)
                vm = frozen.vm(kind)
            stack.callback(nodes.finish, vm, request.node)
            return vm

        yield make


@pytest.fixture
def vm(make_vm: VmMaker) -> Vm:
    """A machine with A booted."""
    made = make_vm()
    made.boot()
    return made


@pytest.fixture(scope="session")
def shelf(make_registry: Callable[..., RegistryDisk]) -> RegistryDisk:
    """The registry of the nodes: A, B and BAD."""
    return make_registry(A, B, BAD)


@pytest.fixture
def make_node(
    request: pytest.FixtureRequest,
    vm_ostree_repo: OstreeRepo,
    vm_tree: Callable[[Tree], Tree],
    shelf: RegistryDisk,
    accel: str,
    say: Callable[[str], None],
) -> Iterator[VmMaker]:
    """Makes booted nodes, the agent at rest with `a`. The first of all is frozen there, the others go on from it.

    `media` is another registry that has `tree`, and `kind` another class of machine.
    """
    with contextlib.ExitStack() as stack:

        def make(
            *, filesystem: str = "xfs", media: RegistryDisk = shelf, tree: Tree = A, kind: Callable[..., Vm] = Vm
        ) -> Vm:
            return nodes.installed(
                stack, request.node, vm_ostree_repo, vm_tree(tree), media, filesystem, accel, say, kind
            )

        yield make


@pytest.fixture
def node(make_node: VmMaker) -> Vm:
    return make_node()


@pytest.fixture(scope="session")
def composefs_repo(say: Callable[[str], None]) -> Iterator[OstreeRepo]:
    """The trees of Debian sid: a libostree and a systemd that make soft reboots."""
    required(lambda: vm_requirements.ensure(say))
    grown = required(lambda: OstreeRepo(Flavour.COMPOSEFS, say))
    virtual_machine.sweep()
    yield grown
    grown.close()


@pytest.fixture(scope="session")
def composefs_shelf(composefs_repo: OstreeRepo, vm_tree: Callable[[Tree], Tree]) -> Iterator[RegistryDisk]:
    """The registry of the nodes with composefs: A, B, and NEW_KERNEL."""
    made = registry_disk.make(composefs_repo, [vm_tree(tree) for tree in (A, B, nodes.NEW_KERNEL)])
    yield made
    made.disk.close()


@pytest.fixture
def make_composefs_node(
    request: pytest.FixtureRequest,
    composefs_repo: OstreeRepo,
    vm_tree: Callable[[Tree], Tree],
    composefs_shelf: RegistryDisk,
    say: Callable[[str], None],
) -> Iterator[VmMaker]:
    """Makes nodes of Debian sid with composefs, as `make_node`."""
    accel = nodes.accelerator(composefs_repo)
    with contextlib.ExitStack() as stack:

        def make() -> Vm:
            return nodes.installed(stack, request.node, composefs_repo, vm_tree(A), composefs_shelf, "ext4", accel, say)

        yield make


@pytest.fixture
def composefs_node(make_composefs_node: VmMaker) -> Vm:
    return make_composefs_node()


@pytest.fixture(scope="session")
def enforcing_repo(request: pytest.FixtureRequest, say: Callable[[str], None]) -> Iterator[EnforcingRepo]:
    """The trees with SELinux enforcing; with the parameter "bootc" those of machines that bootc updates."""
    bootc = getattr(request, "param", "") == "bootc"
    if bootc:
        _find_puller()
    required(lambda: vm_requirements.ensure(say))
    grown = required(lambda: EnforcingRepo(say, bootc=bootc))
    virtual_machine.sweep()
    yield grown
    grown.close()


@pytest.fixture(scope="session")
def enforcing_tree(
    enforcing_repo: EnforcingRepo, vm_tree: Callable[[Tree], Tree], package: Path
) -> Callable[[Tree], Tree]:
    return _bootc_tree(package) if enforcing_repo.bootc else vm_tree


@pytest.fixture(scope="session")
def enforcing_shelf(enforcing_repo: EnforcingRepo, enforcing_tree: Callable[[Tree], Tree]) -> Iterator[RegistryDisk]:
    """The registry of the nodes with SELinux: A, B and BAD, on a node of bootc A and B."""
    make, trees = (bootc_disk.make, (A, B)) if enforcing_repo.bootc else (registry_disk.make, (A, B, BAD))
    made = required(lambda: make(enforcing_repo, [enforcing_tree(tree) for tree in trees]))
    yield made
    made.disk.close()


@pytest.fixture
def enforcing_node(
    request: pytest.FixtureRequest,
    enforcing_repo: EnforcingRepo,
    enforcing_tree: Callable[[Tree], Tree],
    enforcing_shelf: RegistryDisk,
    say: Callable[[str], None],
) -> Iterator[Vm]:
    """A node that booted with SELinux enforcing, and whose agent is confined."""
    accel, tree = nodes.accelerator(enforcing_repo), enforcing_tree(A)
    options = {"kargs": enforcing.KARGS, "label": enforcing.label(enforcing_repo)}
    pulled = (lambda: bootc_disk.pulled(enforcing_repo, tree)) if enforcing_repo.bootc else None
    with contextlib.ExitStack() as stack:
        node_of = (stack, request.node, enforcing_repo, tree, enforcing_shelf)
        yield nodes.installed(*node_of, "ext4", accel, say, options=options, pulled=pulled)


@pytest.fixture(scope="session")
def bootc_repo(say: Callable[[str], None]) -> Iterator[BootcMachineRepo]:
    """The trees of machines that bootc updates."""
    _find_puller()
    required(lambda: vm_requirements.ensure(say))
    grown = required(lambda: BootcMachineRepo(say))
    virtual_machine.sweep()
    yield grown
    grown.close()


@pytest.fixture(scope="session")
def bootc_tree(package: Path, bootc_repo: BootcMachineRepo) -> Callable[[Tree], Tree]:
    """A tree with nodeagent's package and what is real on a host with bootc, without any rpm-ostreed."""
    return _bootc_tree(package)


@pytest.fixture(scope="session")
def make_bootc_shelf(
    bootc_repo: BootcMachineRepo, bootc_tree: Callable[[Tree], Tree]
) -> Iterator[Callable[..., RegistryDisk]]:
    """Makes registries of nodes with bootc, with an image of each tree."""
    with contextlib.ExitStack() as stack:

        def make(*trees: Tree) -> RegistryDisk:
            made = required(lambda: bootc_disk.make(bootc_repo, [bootc_tree(tree) for tree in trees]))
            stack.callback(made.disk.close)
            return made

        yield make


@pytest.fixture(scope="session")
def bootc_shelf(make_bootc_shelf: Callable[..., RegistryDisk]) -> RegistryDisk:
    """The registry of the nodes with bootc: A, B and BAD."""
    return make_bootc_shelf(A, B, BAD)


@pytest.fixture
def make_bootc_node(
    request: pytest.FixtureRequest,
    bootc_repo: BootcMachineRepo,
    bootc_tree: Callable[[Tree], Tree],
    say: Callable[[str], None],
) -> Iterator[VmMaker]:
    """Makes nodes that bootc updates, installed from the real image of `tree`, on XFS, as `make_node`."""
    accel = nodes.accelerator(bootc_repo)
    with contextlib.ExitStack() as stack:

        def make(*, media: RegistryDisk, tree: Tree = A, kind: Callable[..., Vm] = Vm) -> Vm:
            installed = bootc_tree(tree)
            return nodes.installed(
                *(stack, request.node, bootc_repo, installed, media, "xfs", accel, say, kind),
                pulled=lambda: bootc_disk.pulled(bootc_repo, installed),
            )

        yield make


@pytest.fixture
def bootc_node(make_bootc_node: VmMaker, bootc_shelf: RegistryDisk) -> Vm:
    return make_bootc_node(media=bootc_shelf)


@pytest.fixture(params=["rpm-ostree", "bootc"])
def back_end(request: pytest.FixtureRequest) -> BackEnd:
    """Each back end of the OS in turn: what makes registries and nodes of it."""
    names = {"rpm-ostree": ("make_registry", "make_node"), "bootc": ("make_bootc_shelf", "make_bootc_node")}
    return BackEnd(*(request.getfixturevalue(name) for name in names[request.param]))


def _find_puller() -> None:
    try:
        OSTREE_CONTAINER.find()
    except Unavailable as error:
        # Also in CI, which has no time to build it.
        pytest.skip(str(error))


def _bootc_tree(package: Path) -> Callable[[Tree], Tree]:
    installed = (guest.part(), parts.package(package), parts.bootc_host(bootc_disk.SERVED))
    return lambda tree: tree.having(*installed)
