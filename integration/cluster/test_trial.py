# SPDX-License-Identifier: Apache-2.0
"""A config on trial on a node of a cluster: the installed daemon on a real host, with the rights of
packaging/kubernetes, and what the API server has of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integration.cluster.cluster import Cluster
from integration.cluster.other_holders import lease_of
from integration.cluster.tcp_proxy import INSIDE, listen_inside
from integration.cluster.test_installed import (
    KUBECONFIG,
    LATE,
    agent_image,
    image,
    installed,
    kubeconfig,
    make_host,
    make_node,
    package,
    pytest_runtest_makereport,
    reachable,
    say,
)
from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from nodeagent.features.trial.reasons import TrialReason

__all__ = [
    "agent_image",
    "image",
    "installed",
    "make_host",
    "make_node",
    "package",
    "pytest_runtest_makereport",
    "reachable",
    "say",
]

MOVED = "/etc/moved"
POLICY = agent.policy(files={MOVED: ["Drain", "Restart crio.service"]})
SLOTS = "/apis/coordination.k8s.io/v1/namespaces/nodeagent/leases"


def slot(cluster: Cluster, pool: str) -> dict[str, Any] | None:
    """Return the held slot of the pool."""
    leases = cluster.admin.get(SLOTS)["items"]
    held = [
        lease for lease in leases if f"-{pool}-" in lease["metadata"]["name"] and lease["spec"].get("holderIdentity")
    ]
    return held[0] if held else None


def conditions(cluster: Cluster, node: str) -> dict[str, str]:
    """Return the messages of the conditions that hold."""
    entries = cluster.admin.get(f"/api/v1/nodes/{node}")["status"].get("conditions") or ()
    return {entry["type"]: entry["message"] for entry in entries if entry["status"] == "True"}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_lease_and_the_slot_are_held_for_the_trial(
    installed: Cluster, reachable: Path, make_node: HostMaker
) -> None:
    node, pool = "on-trial", "tried"
    installed.node(node)
    cluster = {"kubeconfig": KUBECONFIG}
    host: Host = make_node(
        settings={"node_name": node, "cluster": cluster, "slots": {"pool": pool, "max_unavailable": 1}},
        files={agent.POLICY: POLICY, KUBECONFIG: kubeconfig(installed, node), MOVED: "1"},
        read_only={INSIDE: reachable},
        boot=False,
    )
    listen_inside(host, installed.port)
    host.boot()
    agent.wait_daemon(host)
    agent.apply(host, agent.machine_config("first", files={MOVED: "1"}))
    agent.wait_done(host, "first", LATE)

    def until(so: Callable[[], bool], what: str) -> None:
        host.wait_for(so, what, LATE)

    def cordoned() -> bool:
        return bool(installed.admin.get(f"/api/v1/nodes/{node}")["spec"].get("unschedulable"))

    agent.apply_command(host, agent.machine_config("second", files={MOVED: "2"}), "--try", "1h")
    status = agent.wait_phase(host, "Verifying", reason=TrialReason.ON_TRIAL, timeout=LATE)
    assert (status["trial"]["config"], host.read_text(MOVED)) == ("second", "2")
    lease, held = lease_of(installed, node), slot(installed, pool)
    assert lease is not None
    assert held is not None
    assert held["spec"]["holderIdentity"].startswith(f"{node}/")
    assert (held["metadata"]["annotations"]["nodeagent.org/reason"], cordoned()) == ("update to second", True)
    until(lambda: conditions(installed, node).get("Drained") == "nodeagent: update to second", "the Node has it")

    # A killed agent goes on with the same trial, lease and slot.
    host.run(["systemctl", "kill", "--signal=KILL", agent.UNIT])
    agent.wait_daemon(host)
    again = agent.wait_phase(host, "Verifying", reason=TrialReason.ON_TRIAL, timeout=LATE)
    assert again["trial"]["since"] == status["trial"]["since"]
    after, still = lease_of(installed, node), slot(installed, pool)
    assert after is not None
    assert still is not None
    assert after["metadata"]["uid"] == lease["metadata"]["uid"]
    assert (still["metadata"]["uid"], cordoned()) == (held["metadata"]["uid"], True)

    host.run(["nodeagent", "keep", "--revert"])
    entry = agent.wait_outcome(host, "second", LATE)
    assert (entry["outcome"], entry["reason"], host.read_text(MOVED)) == ("reverted", TrialReason.NOT_KEPT, "1")
    until(lambda: lease_of(installed, node) is None and slot(installed, pool) is None, "lease and slot are given back")
    assert not cordoned()
    until(lambda: "Drained" not in conditions(installed, node), "the Node is free")
    assert host.reboots == 0
