# SPDX-License-Identifier: Apache-2.0
"""The order of a rollout with whole daemons: three installed hosts that drain and reboot, and a real API server.

The judge is the audit log of the API server: who held the slots, when the nodes reported, and when pods were evicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from integration.cluster.cluster import Cluster
from integration.cluster.controller import Controller
from integration.cluster.other_holders import seconds, written
from integration.cluster.tcp_proxy import INSIDE, listen_inside, relay
from integration.cluster.test_installed import (
    KUBECONFIG,
    agent_image,
    image,
    installed,
    kubeconfig,
    make_host,
    make_node,
    package,
    pytest_runtest_makereport,
    say,
)
from integration.cluster.test_rollout_order import RBAC, install, reported, taken_at
from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host

__all__ = ["agent_image", "image", "installed", "make_host", "make_node", "package", "pytest_runtest_makereport", "say"]

PAUSE: Final = 20.0
LEAD: Final = 6.0
# Seconds: a Node is read every half a minute, and each node drains, boots and is verified.
LATE: Final = 240.0
CHECK: Final = "/etc/nodeagent/checks/after-apply.d/required.d/10-disk"
ILL: Final = "/etc/disk-is-ill"
CONTROL, WORK = "order-control", "order-work"


@dataclass(frozen=True)
class Member:
    """A node, its host, and the controller that names its config."""

    node: str
    host: Host
    controller: Controller

    def done(self, config: str) -> bool:
        notes = self.controller.notes()
        return (notes.get("state"), notes.get("currentConfig")) == ("Done", config)

    def reason(self) -> str:
        """Raises CommandFailed or HostGone while the host boots."""
        return str(agent.status(self.host)["reason"])


@pytest.fixture
def cluster(installed: Cluster) -> Iterator[Cluster]:
    install(installed, "fleet-order.yaml")
    yield installed
    # Other tests are about the rights without it.
    for kind in ("clusterrolebindings", "clusterroles"):
        installed.admin.delete(f"{RBAC}/{kind}/nodeagent-fleet-order")


@pytest.fixture
def member(cluster: Cluster, make_node: HostMaker, tmp_path: Path) -> Iterator[Callable[[str, str], Member]]:
    def make(node: str, pool: str) -> Member:
        cluster.node(node, labels={"nodeagent.org/pool": pool})
        controller = Controller(cluster, node)
        controller.annotate(desiredConfig="order-1")
        slots = {"pool": pool, "pause": PAUSE, "order": [CONTROL, WORK], "halt_degraded": 1}
        settings = {
            "node_name": node,
            "cluster": {"kubeconfig": KUBECONFIG, "source": "cluster"},
            "drain": {"by": "self", "lead_time": LEAD},
            "slots": slots,
            "verify": {"timeout": 3},
        }
        files = {KUBECONFIG: kubeconfig(cluster, node), "/etc/one": "1", "/etc/two": "1"}
        host: Host = make_node(
            settings=settings,
            files={**files, agent.POLICY: agent.policy(files={"/etc/two": ["Drain"]})},
            read_only={INSIDE: tmp_path},
            boot=False,
        )
        host.write(CHECK, f"#!/bin/sh\ntest ! -e {ILL}\n", mode=0o755)
        listen_inside(host, cluster.port)
        host.boot()
        return Member(node, host, controller)

    with relay(tmp_path, cluster.port):
        yield make


def pod(cluster: Cluster, node: str) -> None:
    spec = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]}
    body = {"metadata": {"name": f"pod-of-{node}"}, "spec": spec}
    cluster.admin.create("/api/v1/namespaces/default/pods", body)


def released_at(cluster: Cluster, node: str) -> list[float]:
    """When the API server received the requests that free a slot of the node."""
    found: list[float] = []
    holders: dict[str, str] = {}
    for name, event in written(cluster):
        if not name.startswith("slot-disrupt-order-"):
            continue
        held = holders.get(name, "")
        spec = (event.get("responseObject") or {}).get("spec") or {}
        now = "" if event["verb"] == "delete" else spec.get("holderIdentity") or ""
        if held.startswith(f"{node}/") and not now:
            found.append(seconds(event["requestReceivedTimestamp"]))
        holders[name] = now
    return found


def cordoned_at(cluster: Cluster, node: str) -> list[float]:
    """When the API server answered a request that cordons the node."""
    return [
        seconds(event["stageTimestamp"])
        for event in cluster.audit()
        if (event.get("objectRef") or {}).get("name") == node
        and event["verb"] == "patch"
        and ((event.get("requestObject") or {}).get("spec") or {}).get("unschedulable")
    ]


def evicted_at(cluster: Cluster, node: str) -> list[float]:
    """When the API server received a request to evict the pod of the node."""
    found: list[float] = []
    for event in cluster.audit():
        about: dict[str, Any] = event.get("objectRef") or {}
        if (about.get("name"), about.get("subresource")) == (f"pod-of-{node}", "eviction"):
            found.append(seconds(event["requestReceivedTimestamp"]))
    return found


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_pools_pause_lead_time_and_halt(cluster: Cluster, member: Callable[[str, str], Member]) -> None:
    control = member("order-c", CONTROL)
    workers = [member("order-a", WORK), member("order-b", WORK)]
    every = [control, *workers]
    for number, (one, two) in enumerate((("1", "1"), ("2", "1"), ("2", "2"), ("2", "3")), 1):
        control.controller.make(f"order-{number}", one=one, two=two)
    for each in every:
        agent.wait_daemon(each.host)
    for each in every:
        each.host.wait_for(partial(each.done, "order-1"), f"{each.node} reports its config", LATE)
        pod(cluster, each.node)

    # All are requested at once. The change of each drains and reboots it. The first config took slots as well.
    taken = {each.node: len(taken_at(cluster, each.node)) for each in every}
    released = {each.node: len(released_at(cluster, each.node)) for each in every}
    seen: set[str] = set()

    def all_done() -> bool:
        if not control.done("order-2"):
            seen.update(worker.reason() for worker in workers)
        return all(each.done("order-2") for each in every)

    for each in reversed(every):
        each.controller.desire("order-2")
    control.host.wait_for(all_done, "all nodes are updated", LATE * 2)
    assert "PoolOrder" in seen
    assert [each.host.reboots for each in every] == [1, 1, 1]
    (last,) = reported(cluster, control.node, "Done", "order-2")[:1]
    begun = {worker.node: taken_at(cluster, worker.node)[taken[worker.node]] for worker in workers}
    first, second = sorted(begun, key=begun.__getitem__)
    assert begun[first] >= last
    assert begun[second] >= released_at(cluster, first)[released[first]] + PAUSE
    for each in every:
        assert min(evicted_at(cluster, each.node)) >= min(cordoned_at(cluster, each.node)) + LEAD, each.node
        assert cluster.admin.find(f"/api/v1/namespaces/default/pods/pod-of-{each.node}") is None
        assert not each.controller.node()["spec"].get("unschedulable")

    # A worker fails, and is reverted: the other one must not follow.
    bad, waiting = workers
    control.controller.desire("order-3")
    control.host.wait_for(lambda: control.done("order-3"), "the control plane is updated", LATE)
    bad.host.write(ILL, "")
    bad.controller.desire("order-3")
    bad.host.wait_for(lambda: bad.controller.notes()["state"] == "Degraded", "the worker is degraded", LATE)
    before = taken_at(cluster, waiting.node)
    waiting.controller.desire("order-3")
    waiting.host.wait_for(lambda: waiting.reason() == "PoolHalted", "the pool halts", LATE)
    assert bad.node in agent.status(waiting.host)["message"]
    # Nothing but the cluster knows why.
    waiting.host.run(["systemctl", "restart", agent.UNIT])
    agent.wait_daemon(waiting.host)
    waiting.host.wait_for(lambda: waiting.reason() == "PoolHalted", "the pool halts still", LATE)
    assert taken_at(cluster, waiting.node) == before
    assert waiting.host.read_text("/etc/two") == bad.host.read_text("/etc/two") == "1"

    # It is repaired, and gets the next config: both follow.
    bad.host.run(["rm", ILL])
    control.controller.desire("order-4")
    control.host.wait_for(lambda: control.done("order-4"), "the control plane is updated", LATE)
    for worker in workers:
        worker.controller.desire("order-4")
    bad.host.wait_for(lambda: all(each.done("order-4") for each in every), "the pool continues", LATE * 2)
    assert min(at for at in taken_at(cluster, waiting.node) if at not in before) > min(
        at for at in reported(cluster, bad.node, "Working", "order-2") if at > max(before)
    )
    assert [each.host.read_text("/etc/two") for each in every] == ["3", "3", "3"]
