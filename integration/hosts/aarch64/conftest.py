# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the machines of aarch64: those of the vm ring, with another package, other trees and another QEMU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration.hosts import emulation
from integration.hosts.container.conftest import built_package, pytest_runtest_makereport, required, say
from integration.hosts.container.image import cache_directory
from integration.hosts.vm import virtual_machine, vm_requirements
from integration.hosts.vm.conftest import VmMaker, make_node, make_registry, shelf, vm_tree
from integration.hosts.vm.virtual_machine import Vm
from integration.trees.aarch64 import Aarch64Repo

__all__ = ["make_node", "make_registry", "pytest_runtest_makereport", "say", "shelf", "vm_tree"]

HERE = Path(__file__).parent
MACHINE = "aarch64"
# Seconds: the first test makes the root, the trees and the disk, and boots it.
TEST_TIMEOUT = 3600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.vm)
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT))


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory, say: Callable[[str], None]) -> Path:
    return built_package(tmp_path_factory.mktemp("package"), say, MACHINE)


@pytest.fixture(scope="session")
def raw(package: Path) -> Path:
    """The system extension that the build of the package left beside the tar."""
    return cache_directory() / f"dist-{MACHINE}" / "nodeagent.raw"


@pytest.fixture(scope="session")
def vm_ostree_repo(say: Callable[[str], None]) -> Iterator[Aarch64Repo]:
    required(lambda: vm_requirements.ensure(say, "aarch64-vm"))
    virtual_machine.sweep()
    with contextlib.ExitStack() as stack:
        required(lambda: stack.enter_context(emulation.aarch64(say)))
        grown = required(lambda: Aarch64Repo(say))
        stack.callback(grown.close)
        yield grown


@pytest.fixture(scope="session")
def accel() -> str:
    return MACHINE


@pytest.fixture
def node(make_node: VmMaker) -> Vm:
    """A node that was installed from the image of A, with the agent at rest."""
    return make_node(filesystem="ext4")
