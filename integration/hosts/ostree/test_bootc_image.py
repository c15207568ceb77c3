# SPDX-License-Identifier: Apache-2.0
"""What an image brings to a host of bootc beside its files: kernel arguments, and images that are bound to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree import disk, updates
from integration.hosts.ostree.conftest import SMALL, OstreeHostMaker, Publish
from integration.hosts.ostree.ostree_host import STAGED, OstreeHost
from integration.hosts.ostree.test_staged_plan import planned
from integration.trees import parts
from integration.trees.image_registry import Published
from integration.trees.tree import A, B, Tree

ARGUMENTS = "/usr/lib/bootc/kargs.d/10-os.toml"
WITH_1 = replace(A, files={**A.files, ARGUMENTS: 'kargs = ["image=1", "both=1"]\n'})
WITH_2 = replace(
    B, files={**B.files, ARGUMENTS: 'kargs = ["both=1", "image=2"]\nmatch-architectures = ["x86_64", "aarch64"]\n'}
)
BOUND = replace(B, files={**B.files, "/usr/lib/bootc/bound-images.d/app.container": "[Container]\nImage=app\n"})


@pytest.fixture
def publish_node(publish_bootc: Publish, package: Path) -> Callable[[Tree], Published]:
    return lambda tree: publish_bootc(tree.having(parts.package(package)))


@pytest.fixture
def node(make_bootc_host: OstreeHostMaker, publish_node: Callable[[Tree], Published]) -> OstreeHost:
    """As bootc installs it: with the arguments of the image, and one of the host."""
    host = make_bootc_host(publish_node(WITH_1), kargs=[*disk.KARGS, "image=1", "both=1", "local=1"])
    agent.settings(host, SMALL)
    host.write(agent.POLICY, updates.POLICY)
    host.boot()
    agent.wait_daemon(host)
    agent.apply(host, updates.config("a", publish_node(WITH_1)))
    agent.wait_done(host, "a")
    return host


def test_the_kernel_arguments_of_the_image(node: OstreeHost, publish_node: Callable[[Tree], Published]) -> None:
    config = updates.config("b", publish_node(WITH_2), kernelArguments=["config=1"])
    os = planned(node, config)["os"]
    assert sorted(os["kernel_arguments"]["added"]) == ["config=1", "image=2"]
    assert os["kernel_arguments"]["removed"] == ["image=1"]
    assert os["files"]["changed"] > 0, "these trees have no database of packages"
    assert os["kernel"] is not None
    agent.apply(node, config)
    updates.wait_updated(node, "b", WITH_2)
    ours = [word for word in node.cmdline if word.endswith(("=1", "=2"))]
    assert ours == ["both=1", "local=1", "image=2", "config=1"]


def test_what_such_a_host_does_not_serve(node: OstreeHost, publish_node: Callable[[Tree], Published]) -> None:
    for spec in ({"kernelType": "realtime"}, {"extensions": ["usbguard"]}):
        node.write("/root/refused.yaml", updates.config("b", publish_node(WITH_1), **spec))
        for command in ("plan", "apply"):
            done = node.run(["nodeagent", command, "/root/refused.yaml"], check=False)
            assert (done.returncode, "NoLayering" in done.stderr) == (3, True), done


@pytest.mark.long
def test_bound_images(node: OstreeHost, publish_node: Callable[[Tree], Published]) -> None:
    agent.apply(node, updates.config("b", publish_node(BOUND)))
    now = agent.wait_phase(node, "Degraded")
    assert (now["reason"], now["current"]) == ("BoundImages", "a")
    assert not node.exists(STAGED)
