"""The I/O fence where there is nothing to limit: a container has no io controller, and /sys is read-only there."""

from __future__ import annotations

from integration.host import agent
from integration.ostreehost import updates
from integration.ostreehost.conftest import SMALL, Publish
from integration.ostreehost.machine import OstreeHost
from integration.trees.tree import B


def test_an_update_without_a_fence(node_at_a: OstreeHost, publish: Publish) -> None:
    node = node_at_a
    agent.settings(node, {**SMALL, "fence": {"enabled": "always"}})
    node.run(["systemctl", "reload", agent.UNIT])
    agent.apply(node, updates.config("b", publish(B)))
    updates.wait_updated(node, "b", B)
    said = [line for line in updates.said(node).splitlines() if line.startswith("fence: ")]
    assert len(said) == 1, said
    assert said[0].startswith("fence: not up, "), said
    assert agent.status(node)["fence"] is None
    assert not node.exists("/run/nodeagent/fence")
