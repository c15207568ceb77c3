# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the stand-in's own tests: one template for the run, a fresh sandbox for each test that asks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration.hosts import overlay
from integration.hosts.container import container_host
from integration.hosts.container.conftest import required
from integration.hosts.container.conftest import say as say
from integration.standins.rpmostreed.adapter_process import Agent
from integration.standins.rpmostreed.sandbox import template
from integration.standins.rpmostreed.sandbox.sandbox import Sandbox, prepare
from integration.standins.rpmostreed.sandbox.template import Template
from integration.trees.base import Flavour, base
from integration.trees.conftest import FIRST_TIMEOUT
from integration.trees.toolbox import Toolbox, scratch, throwaway

HERE = Path(__file__).parent
WORKSHOP_SIZE = "512m"
SandboxMaker = Callable[..., Sandbox]
MakeAgent = Callable[..., Agent]
_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.host)
            item.add_marker(pytest.mark.timeout(FIRST_TIMEOUT))


@pytest.fixture(scope="session")
def root(say: Callable[[str], None]) -> Iterator[Path]:
    """A Debian with ostree in which the stand-in is installed."""
    image = required(lambda: base(Flavour.CONTAINER, say))
    with scratch(image) as directory:
        prepare(directory)
        yield directory
    image.close()


@pytest.fixture(scope="session")
def workshop() -> Iterator[Path]:
    """A directory in memory: every commit of libostree syncs the whole file system, and a disk has other users."""
    container_host.sweep()
    with throwaway("workshop") as directory:
        overlay.mount_tmpfs(directory / "memory", WORKSHOP_SIZE)
        yield directory / "memory"


@pytest.fixture(scope="session")
def system(root: Path, workshop: Path) -> Template:
    """The system that every sandbox starts from."""
    (root / workshop.relative_to("/")).mkdir(parents=True)
    return template.build(workshop / "template", root, Toolbox(root, [workshop]))


@pytest.fixture
def make_sandbox(root: Path, system: Template, workshop: Path) -> Iterator[SandboxMaker]:
    """Makes sandboxes with settings of the stand-in: make_sandbox(like=2022, idle_spread=0)."""
    sandboxes: list[Sandbox] = []

    def make(**settings: str | int) -> Sandbox:
        sandboxes.append(Sandbox(root, system, workshop / f"sandbox-{next(_numbers)}", **settings))
        return sandboxes[-1]

    yield make
    for one in sandboxes:
        one.close()


@pytest.fixture
def sandbox(make_sandbox: SandboxMaker) -> Sandbox:
    return make_sandbox()


@pytest.fixture
def make_agent() -> Iterator[MakeAgent]:
    agents: list[Agent] = []

    def make(sandbox: Sandbox, **timing: float) -> Agent:
        agents.append(Agent(sandbox, **timing))
        return agents[-1]

    yield make
    for agent in agents:
        agent.kill()


@pytest.fixture
def agent(sandbox: Sandbox, make_agent: MakeAgent) -> Agent:
    return make_agent(sandbox)
