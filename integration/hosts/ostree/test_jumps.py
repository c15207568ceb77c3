# SPDX-License-Identifier: Apache-2.0
"""Rules for versions of the OS on a host that is booted from ostree, with versions as rpm-ostree reports them."""

from __future__ import annotations

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree import updates
from integration.hosts.ostree.conftest import Publish
from integration.hosts.ostree.ostree_host import OstreeHost
from integration.trees.tree import BAD, A, B
from nodeagent.features.update_graph.reasons import JumpReason
from nodeagent.kinds import AnyReason

RULES = "/etc/nodeagent/update-path.yaml"


def refused(node: OstreeHost, config: str, reason: AnyReason) -> str:
    done = agent.apply_command(node, config, check=False)
    assert (done.returncode, str(reason) in done.stderr) == (4, True), done
    return done.stderr


def test_a_version_that_must_not_be_skipped(node_at_a: OstreeHost, publish: Publish) -> None:
    """An image of a known version is refused at once, any other when it is staged. The way over the barrier is open."""
    node = node_at_a
    barrier = f"barriers: [{{version: {B.version}, reason: keys}}]\n"
    first = f"{A.version} -> {BAD.version} skips a version that must not be skipped: go to {B.version} first (keys)"
    named = barrier + f"images: {{'{publish(BAD).digest}': {BAD.version}}}\n"
    node.write(RULES, named)
    assert first in refused(node, updates.config("c", publish(BAD)), JumpReason.BARRIER_SKIPPED)
    assert updates.shown(agent.status(node)) == [f"{A.version} booted"]
    node.write(RULES, barrier)
    agent.apply(node, updates.config("c2", publish(BAD)))
    updates.wait_degraded(node, JumpReason.BARRIER_SKIPPED)
    assert updates.shown(agent.status(node)) == [f"{BAD.version} staged locked", f"{A.version} booted"]
    assert node.reboots == 0
    agent.apply(node, updates.config("b", publish(B)))
    updates.wait_updated(node, "b", B)
    node.write(RULES, named)
    node.write("/root/planned.yaml", updates.config("c", publish(BAD)))
    plan = node.run(["nodeagent", "plan", "/root/planned.yaml"]).stdout
    assert f"update path: {B.version} -> {BAD.version}" in plan
