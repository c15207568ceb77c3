# SPDX-License-Identifier: Apache-2.0
"""`nodeagent plan --stage`: what is inside an update, before it is applied."""

from __future__ import annotations

import json
from typing import Any

from integration.hosts import nodeagent_client as agent
from integration.hosts.errors import CommandFailed
from integration.hosts.ostree import updates
from integration.hosts.ostree.conftest import Publish
from integration.hosts.ostree.ostree_host import OstreeHost
from integration.trees.ostree_repo import Commit
from integration.trees.tree import A, B

PLANNED = "/root/planned.json"


def staged(node: OstreeHost) -> list[str]:
    return [f"{found.checksum}.{found.serial}" for found in node.deployments() if found.staged]


def planned(node: OstreeHost, config: str) -> dict[str, Any]:
    node.write(PLANNED, config)
    answer: dict[str, Any] = json.loads(node.run(["nodeagent", "plan", "--stage", "--json", PLANNED]).stdout)
    return answer


def wait_rest_at_a(node: OstreeHost) -> None:
    """Wait until the daemon runs, with nothing staged. Right after a kill, no status can be read."""

    def rests() -> bool:
        try:
            now = agent.status(node)
        except CommandFailed:
            return False
        return (now["daemon"], now["phase"], updates.shown(now)) == ("running", "Idle", [f"{A.version} booted"])

    node.wait_for(rests, "the host rests at a", updates.WAIT, every=0.2)


def test_it_is_shown_kept_through_a_reboot_of_another_program_and_applied(
    node_at_a: OstreeHost, publish: Publish
) -> None:
    node, config = node_at_a, updates.config("b", publish(B))
    answer = planned(node, config)
    os = answer["os"]
    assert answer["staged"]
    assert os["files"] or os["packages"], "the contents of both are compared"
    assert os["merged"] == []
    assert os["fetched_bytes"] > 0
    assert f"{os['fetched_bytes'] / 1e6:.1f} MB pulled" in os["summary"]
    [first] = staged(node)
    assert os["staged"].endswith(f"-{first}")
    assert updates.shown(agent.status(node)) == [f"{B.version} staged locked", f"{A.version} booted"]
    node.run(["systemctl", "restart", "nodeagent"])
    agent.wait_daemon(node)
    agent.wait_phase(node, "Idle")
    assert staged(node) == [first], "a restart keeps it"

    # A foreign reboot does not boot it.
    with node.rebooting():
        node.run(["systemctl", "reboot"])
    wait_rest_at_a(node)
    assert agent.outcomes(node) == [("a", "done")]
    assert node.read_text(updates.MINE) == "mine of a\n"

    # An apply of the same config uses what is staged.
    again = planned(node, config)["os"]["staged"]
    updates.block_reboot(node)
    agent.apply(node, config)
    updates.wait_blocked(node)
    assert [again.endswith(f"-{found}") for found in staged(node)] == [True]
    updates.unblock_reboot(node)
    updates.wait_updated(node, "b", B)


def test_interrupted_in_the_middle_it_leaves_nothing(node_at_a: OstreeHost, publish: Publish) -> None:
    node, config = node_at_a, updates.config("b", publish(B))
    node.write(PLANNED, config)
    for kill in (
        ["systemctl", "stop", "plan-b"],
        ["systemctl", "kill", "--signal=KILL", "--kill-whom=main", agent.UNIT],
    ):
        updates.inject_faults(node, updates.SLOW)
        node.run(["systemd-run", "--unit=plan-b", "--collect", "nodeagent", "plan", "--stage", PLANNED])
        updates.wait_step(node, "Fetching ostree chunk")
        node.run(kill)
        node.wait_for(
            lambda: node.run(["systemctl", "is-active", "plan-b"], check=False).stdout.strip() != "active",
            "the client has ended",
            updates.WAIT,
        )
        wait_rest_at_a(node)
    with node.rebooting():
        node.run(["systemctl", "reboot"])
    wait_rest_at_a(node)
    assert agent.outcomes(node) == [("a", "done")]
    agent.apply(node, config)
    updates.wait_updated(node, "b", B)


def test_a_deployment_of_another_program_stays(node_at_a: OstreeHost, publish: Publish, commit_b: Commit) -> None:
    node = node_at_a
    node.stage(commit_b)
    node.write(PLANNED, updates.config("k", publish(A), kernelArguments=["nosmt"]))
    done = node.run(["nodeagent", "plan", "--stage", PLANNED], check=False)
    assert (done.returncode, "StagedByOther" in done.stderr) == (4, True), done
    assert [d.checksum for d in node.deployments() if d.staged] == [commit_b.checksum]
    assert agent.status(node)["phase"] == "Idle"
