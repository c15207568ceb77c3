# SPDX-License-Identifier: Apache-2.0
"""Hosts with bootc: alone, without what it needs of libostree, and beside rpm-ostree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree import updates
from integration.hosts.ostree.conftest import SMALL, OstreeHostMaker, Publish
from integration.hosts.ostree.ostree_host import OstreeHost
from integration.trees import parts
from integration.trees.image_registry import Registry
from integration.trees.ostree_repo import OstreeRepo
from integration.trees.tree import A, B

TIMER = "bootc-fetch-apply-updates.timer"
UNITS = "/usr/lib/systemd/system"
# The state after the installation of its package; the timer is not enabled.
BOOTC = {
    "/usr/bin/bootc": "#!/bin/sh\nexit 1\n",
    f"{UNITS}/bootc-fetch-apply-updates.service": "[Service]\nType=oneshot\nExecStart=/usr/bin/true\n",
    f"{UNITS}/{TIMER}": "[Timer]\nOnBootSec=1h\n[Install]\nWantedBy=timers.target\n",
}
WITH_BOOTC = replace(A, files={**A.files, **BOOTC})


@pytest.fixture
def bootc_alone(
    make_ostree_host: OstreeHostMaker, package: Path, ostree_repo: OstreeRepo, registry: Registry
) -> OstreeHost:
    """Installed from an image, with the agent and without rpm-ostree, and without the program that pulls."""
    commit = ostree_repo.commit(WITH_BOOTC.having(parts.package(package)))
    image = registry.publish(commit, "quay.io/example/bootc", A.version)
    host = make_ostree_host(registry.pulled(image))
    agent.settings(host, SMALL)
    host.write(agent.POLICY, updates.POLICY)
    host.boot()
    agent.wait_daemon(host)
    return host


def test_bootc_alone(bootc_alone: OstreeHost, publish: Publish) -> None:
    node = bootc_alone
    assert node.exists("/run/ostree-booted")
    agent.apply(node, updates.config("files"))
    agent.wait_done(node, "files")
    for reason, spec in (
        ("NoPuller", {"image": publish(B)}),
        ("NoLayering", {"kernelType": "realtime"}),
        ("NoLayering", {"extensions": ["usbguard"]}),
    ):
        done = agent.apply_command(node, updates.config("os", **spec), check=False)
        assert done.returncode == 3, done
        assert reason in done.stderr
    # The same for a tool that writes the file without asking.
    agent.write_desired(node, updates.config("os", publish(B)))
    now = agent.wait_phase(node, "Degraded")
    assert (now["reason"], now["current"]) == ("NoPuller", "files")
    # Files and units are ours all the same.
    agent.apply(node, updates.config("more-files", extensions=[], baseOSExtensionsContainerImage="quay.io/example/x@1"))
    agent.wait_done(node, "more-files")
    assert node.read_text(updates.MINE) == "mine of more-files\n"
    assert node.reboots == 0


def test_beside_rpm_ostree(make_ostree_node: OstreeHostMaker, publish: Publish) -> None:
    """rpm-ostree can drive what bootc has installed, as long as bootc does not update on its own."""
    node = make_ostree_node(WITH_BOOTC, files={agent.POLICY: updates.POLICY})
    agent.apply(node, updates.config("a", publish(WITH_BOOTC)))
    agent.wait_done(node, "a")
    node.run(["systemctl", "start", TIMER])
    done = agent.apply_command(node, updates.config("b", publish(B)), check=False)
    assert done.returncode == 4
    assert "OtherDriver" in done.stderr
    assert TIMER in done.stderr, "the way out"
    node.run(["systemctl", "stop", TIMER])
    agent.apply(node, updates.config("b", publish(B)))
    updates.wait_updated(node, "b", B)
    assert node.reboots == 1
