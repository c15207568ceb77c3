# SPDX-License-Identifier: Apache-2.0
"""Fixtures of ostree hosts: the trees once, a fresh host for every test that asks for one.

`ostree_host` has A booted and nothing of nodeagent in it. `ostree_node` has A with nodeagent's package and the stand-in
of rpm-ostreed, the agent up and at rest, and a registry from which `publish` makes it able to pull another tree:

    def test_an_update(ostree_node: OstreeHost, publish: Publish) -> None:
        image = publish(B)
        agent.apply(ostree_node, agent.machine_config("b", osImageURL=image.by_digest))

`bootc_host` and `bootc_node` are hosts that bootc updates: installed from a real image of A, with the real
`ostree container`, and with a registry on loopback that has the images of `publish_bootc`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts import overlay
from integration.hosts.container import container_host
from integration.hosts.container.conftest import finish, package, pytest_runtest_makereport, required, say
from integration.hosts.locks import claim
from integration.hosts.ostree import updates
from integration.hosts.ostree.ostree_host import OstreeHost
from integration.trees import parts
from integration.trees.base import Flavour
from integration.trees.conftest import FIRST_TIMEOUT, ostree_repo
from integration.trees.encapsulated import Encapsulated
from integration.trees.image_registry import Published, Pulled, Registry
from integration.trees.ostree_container import OSTREE_CONTAINER
from integration.trees.ostree_repo import Commit, OstreeRepo
from integration.trees.tree import A, B, Tree

__all__ = ["ostree_repo", "package", "pytest_runtest_makereport", "say"]

HERE = Path(__file__).parent
REGISTRY = "/run/registry"  # in a node
IMAGE = "quay.io/example/os"
SMALL: Mapping[str, Any] = {"os": {"free_space": 512}}
"""Settings for a disk of disk.SIZE, over agent.FAST; an image here is about 100 MB."""
OstreeHostMaker = Callable[..., OstreeHost]
Publish = Callable[[Tree], Published]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.host)
            item.add_marker(pytest.mark.timeout(FIRST_TIMEOUT))


@pytest.fixture
def make_ostree_host(request: pytest.FixtureRequest, ostree_repo: OstreeRepo) -> Iterator[OstreeHostMaker]:
    """Makes hosts, off, with a tree or an image deployed (A if none is given) and any arguments of OstreeHost."""
    hosts: list[OstreeHost] = []

    def make(source: Tree | Pulled = A, **options: Any) -> OstreeHost:
        made = ostree_repo.commit(source) if isinstance(source, Tree) else source
        hosts.append(OstreeHost(ostree_repo, made, **options))
        return hosts[-1]

    yield make
    for host in hosts:
        finish(host, request.node)


@pytest.fixture
def ostree_host(make_ostree_host: OstreeHostMaker) -> OstreeHost:
    """A host with A booted."""
    host = make_ostree_host()
    host.boot()
    return host


@pytest.fixture(scope="session")
def commit_a(ostree_repo: OstreeRepo) -> Commit:
    return ostree_repo.commit(A)


@pytest.fixture(scope="session")
def commit_b(ostree_repo: OstreeRepo) -> Commit:
    return ostree_repo.commit(B)


@pytest.fixture(scope="session")
def node_tree(package: Path) -> Callable[[Tree], Tree]:
    """A tree with nodeagent's package and the stand-in of rpm-ostreed in it."""
    installed = (parts.package(package), parts.stand_in({"REGISTRY": REGISTRY}))
    return lambda tree: tree.having(*installed)


@pytest.fixture(scope="session")
def registry(ostree_repo: OstreeRepo) -> Iterator[Registry]:
    """Empty at first; nodes see it."""
    directory = container_host.hosts_directory() / f"na-registry-{secrets.token_hex(4)}"
    with claim(directory):  # what a killed run leaves is swept like its hosts
        yield Registry(directory, ostree_repo)
        overlay.remove_tree(directory)


@pytest.fixture(scope="session")
def publish(ostree_repo: OstreeRepo, registry: Registry, node_tree: Callable[[Tree], Tree]) -> Publish:
    """Makes the image of a tree, with nodeagent in it, that nodes can update to; its tag is the version."""
    published: dict[bytes, Published] = {}

    def once(tree: Tree) -> Published:
        if tree.key() not in published:
            published[tree.key()] = registry.publish(ostree_repo.commit(node_tree(tree)), IMAGE, tree.version)
        return published[tree.key()]

    return once


@pytest.fixture
def make_ostree_node(make_ostree_host: OstreeHostMaker, publish: Publish, registry: Registry) -> OstreeHostMaker:
    """Makes hosts with nodeagent and the stand-in, the agent up and at rest unless `boot` is false.

    They are installed from the image of the tree, which is what `publish(tree)` says.

    `settings` go over agent.FAST; `files` (path to text) are there before the first boot; the rest goes to OstreeHost.
    """

    def make(
        tree: Tree = A,
        *,
        settings: Mapping[str, Any] | None = None,
        files: Mapping[str, str] | None = None,
        boot: bool = True,
        **options: Any,
    ) -> OstreeHost:
        source = registry.pulled(publish(tree))
        host = make_ostree_host(source, read_only={REGISTRY: registry.folder}, **options)
        agent.settings(host, {**SMALL, **(settings or {})})
        for path, text in (files or {}).items():
            host.write(path, text)
        if boot:
            host.boot()
            agent.wait_daemon(host)
        return host

    return make


@pytest.fixture
def ostree_node(make_ostree_node: OstreeHostMaker) -> OstreeHost:
    """A host with A, nodeagent and the stand-in, the agent up and at rest."""
    return make_ostree_node()


@pytest.fixture
def make_node_at_a(make_ostree_node: OstreeHostMaker, publish: Publish) -> OstreeHostMaker:
    """Makes nodes as make_ostree_node does, booted, whose current config is `a` with A. It took no reboot."""

    def make(*, files: Mapping[str, str] | None = None, **options: Any) -> OstreeHost:
        host = make_ostree_node(files={agent.POLICY: updates.POLICY, **(files or {})}, **options)
        agent.apply(host, updates.config("a", publish(A)))
        agent.wait_done(host, "a")
        return host

    return make


@pytest.fixture
def node_at_a(make_node_at_a: OstreeHostMaker) -> OstreeHost:
    return make_node_at_a()


@pytest.fixture(scope="session")
def bootc_repo(say: Callable[[str], None]) -> Iterator[OstreeRepo]:
    required(OSTREE_CONTAINER.find, "the hosts with bootc cannot run here")
    grown = required(lambda: OstreeRepo(Flavour.BOOTC, say))
    container_host.sweep()
    yield grown
    grown.close()


@pytest.fixture(scope="session")
def bootc_images(bootc_repo: OstreeRepo) -> Iterator[Encapsulated]:
    """Empty at first; hosts see it."""
    directory = container_host.hosts_directory() / f"na-images-{secrets.token_hex(4)}"
    with claim(directory):
        images = required(lambda: Encapsulated(bootc_repo, directory))
        yield images
        images.close()
        overlay.remove_tree(directory)


@pytest.fixture(scope="session")
def publish_bootc(bootc_repo: OstreeRepo, bootc_images: Encapsulated) -> Publish:
    """Makes the image of a tree that hosts with bootc can update to, without nodeagent."""
    return lambda tree: bootc_images.publish(bootc_repo.commit(tree.having(parts.bootc_host())), IMAGE)


@pytest.fixture
def make_bootc_host(
    request: pytest.FixtureRequest, bootc_repo: OstreeRepo, bootc_images: Encapsulated
) -> Iterator[OstreeHostMaker]:
    """Makes hosts, off, that are installed from an image; with any arguments of OstreeHost."""
    hosts: list[OstreeHost] = []

    def make(image: Published, **options: Any) -> OstreeHost:
        source = bootc_images.pulled(image)
        hosts.append(OstreeHost(bootc_repo, source, read_only={parts.SERVED: bootc_images.folder}, **options))
        return hosts[-1]

    yield make
    for host in hosts:
        finish(host, request.node)


@pytest.fixture
def bootc_host(make_bootc_host: OstreeHostMaker, publish_bootc: Publish) -> OstreeHost:
    """A host with A booted and nothing of nodeagent."""
    host = make_bootc_host(publish_bootc(A))
    host.boot()
    return host


@pytest.fixture
def bootc_node(make_bootc_host: OstreeHostMaker, publish_bootc: Publish, package: Path) -> OstreeHost:
    """A host with A and nodeagent, the agent up and at rest."""
    host = make_bootc_host(publish_bootc(A.having(parts.package(package))))
    agent.settings(host, SMALL)
    host.boot()
    agent.wait_daemon(host)
    return host


@pytest.fixture
def publish_bootc_node(publish_bootc: Publish, package: Path) -> Publish:
    """Makes the image of a tree with nodeagent in it that hosts with bootc can update to."""
    return lambda tree: publish_bootc(tree.having(parts.package(package)))


@pytest.fixture
def make_bootc_node_at_a(make_bootc_host: OstreeHostMaker, publish_bootc_node: Publish) -> Callable[[], OstreeHost]:
    """Makes hosts with bootc and nodeagent, whose current config is `a` with the image of A."""

    def make() -> OstreeHost:
        host = make_bootc_host(publish_bootc_node(A))
        agent.settings(host, SMALL)
        host.write(agent.POLICY, updates.POLICY)
        host.boot()
        agent.wait_daemon(host)
        agent.apply(host, updates.config("a", publish_bootc_node(A)))
        agent.wait_done(host, "a")
        return host

    return make


@pytest.fixture
def bootc_node_at_a(make_bootc_node_at_a: Callable[[], OstreeHost]) -> OstreeHost:
    return make_bootc_node_at_a()
