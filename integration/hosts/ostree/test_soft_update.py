# SPDX-License-Identifier: Apache-2.0
"""`reboot.soft: auto` on a host whose libostree is too old to prepare a soft reboot: a full one, and the reason."""

from __future__ import annotations

import json

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree import updates
from integration.hosts.ostree.conftest import OstreeHostMaker, Publish
from integration.trees.tree import B

pytestmark = pytest.mark.finding(
    "OS: soft reboots",
    "An update of the OS is entered by a soft reboot only with the same kernel, initramfs, arguments, "
    "policy and files of a starting kernel; an older libostree gets a full one with the reason.",
)


def test_an_old_libostree_gets_a_full_reboot(make_node_at_a: OstreeHostMaker, publish: Publish) -> None:
    node = make_node_at_a(settings={"reboot": {"soft": "auto"}})
    config = updates.config("b", publish(B))
    planned = json.loads(node.run(["nodeagent", "plan", "--json", "--stage", "-"], stdin=config).stdout)["reboot"]
    assert (planned["kind"], planned["reason"]) == ("full", "SoftRebootUnsupported")
    assert "2026.1" in planned["why"]
    agent.apply(node, config)
    updates.wait_updated(node, "b", B)
    newest = agent.history(node)[0]
    assert (node.reboots, newest["reboots"], newest["soft_reboots"]) == (1, 1, 0)
    assert "a full reboot, not a soft one: SoftRebootUnsupported: libostree is " in newest["message"]
    assert "not a soft one" in updates.said(node)
