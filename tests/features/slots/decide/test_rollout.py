# SPDX-License-Identifier: Apache-2.0
"""The rollout status of a fleet: pools, nodes, and blocking actors."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.features.slots.decide.answer import rollout_to_dict
from nodeagent.features.slots.decide.rollout import (
    ClusterObjects,
    NodeProgress,
    NodeRollout,
    Rollout,
    rollout_of,
)

A, B = "rendered-a", "rendered-b"
MCO = "machineconfiguration.openshift.io/"
ROLE = "node-role.kubernetes.io/"


def node(
    name: str,
    current: str = A,
    desired: str | None = None,
    state: str = "Done",
    *,
    roles: tuple[str, ...] = ("worker",),
    labels: dict[str, str] | None = None,
    notes: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    values = {"currentConfig": current, "desiredConfig": current if desired is None else desired, "state": state}
    annotations = {MCO + key: value for key, value in values.items() if value} | (notes or {})
    all_labels = {ROLE + role: "" for role in roles} | (labels or {})
    about = {"name": name, "uid": name, "resourceVersion": "1", "labels": all_labels, "annotations": annotations}
    return {"metadata": about, "spec": spec}


def pool(name: str, target: str = A, **spec: Any) -> dict[str, Any]:
    selector = {"matchLabels": {ROLE + name: ""}}
    wanted = {"configuration": {"name": target}, "nodeSelector": selector, **spec}
    about = {"name": name, "uid": name, "resourceVersion": "1", "generation": 2}
    return {"metadata": about, "spec": wanted, "status": {"observedGeneration": 2}}


def only(fleet: Rollout) -> NodeRollout:
    (member,) = [member for one in fleet.pools for member in one.members]
    return member


@pytest.mark.parametrize(
    ("found", "target", "progress"),
    [
        (node("n"), A, NodeProgress.UPDATED),
        (node("n"), B, NodeProgress.PENDING),  # It is done with its old request, and has no new one yet.
        (node("n", A, B), B, NodeProgress.UPDATING),
        (node("n", A, B, "Working"), B, NodeProgress.UPDATING),
        (node("n", A, A, "Working"), A, NodeProgress.UPDATING),
        (node("n", A, B, "Degraded"), B, NodeProgress.DEGRADED),
        (node("n", A, B, "Unreconcilable"), B, NodeProgress.DEGRADED),
        (node("n", A, A, "Degraded"), A, NodeProgress.DEGRADED),
        (node("n", "", B, ""), B, NodeProgress.PENDING),
        (node("n", B, A), B, NodeProgress.UPDATING),  # It has the config of the pool, and is requested to go back.
        (node("n", "", "", ""), A, NodeProgress.PENDING),
        (node("n"), "", NodeProgress.PENDING),
    ],
)
def test_how_far_a_node_is(found: dict[str, Any], target: str, progress: NodeProgress) -> None:
    fleet = rollout_of(ClusterObjects([found], [pool("worker", target)]))
    assert only(fleet).progress is progress
    assert fleet.complete is (progress is NodeProgress.UPDATED)
    assert fleet.degraded is (progress is NodeProgress.DEGRADED)


X, Y = "registry/os@sha256:x", "registry/os@sha256:y"


@pytest.mark.finding("peers: image mode", "A node in image mode is updated when it has the image of its pool.")
@pytest.mark.parametrize(
    ("desired", "current", "images", "progress"),
    [
        ("", "", None, NodeProgress.UPDATED),
        ("", "", {}, NodeProgress.UPDATED),
        (X, X, None, NodeProgress.UPDATED),  # it is not known which image the pool has
        (X, X, {"worker": X}, NodeProgress.UPDATED),
        (X, X, {"worker": Y}, NodeProgress.PENDING),
        (X, X, {"worker": ""}, NodeProgress.PENDING),
        (X, X, {}, NodeProgress.PENDING),  # about to leave image mode
        ("", "", {"worker": X}, NodeProgress.PENDING),
        ("", "", {"other": X}, NodeProgress.UPDATED),
        (X, "", {"worker": X}, NodeProgress.UPDATING),
        ("", X, {}, NodeProgress.UPDATING),
        (Y, X, None, NodeProgress.UPDATING),
    ],
)
def test_the_image_counts_as_well(
    desired: str, current: str, images: dict[str, str] | None, progress: NodeProgress
) -> None:
    notes = {MCO + "desiredImage": desired, MCO + "currentImage": current}
    found = node("n", notes={key: value for key, value in notes.items() if value})
    fleet = rollout_of(ClusterObjects([found], [pool("worker")], images=images))
    assert only(fleet).progress is progress
    assert fleet.complete is (progress is NodeProgress.UPDATED)


@pytest.mark.finding("peers: image mode", "A node in image mode is updated when it has the image of its pool.")
def test_a_pool_whose_image_is_still_built_is_not_complete() -> None:
    fleet = rollout_of(ClusterObjects([], [pool("worker")], images={"worker": ""}))
    assert fleet.pools[0].troubles == ["its image has not been built yet"]


@pytest.mark.finding(
    "peers: nodes without a config", "A node to which its controller gives no config is named by `fleet status`."
)
def test_a_node_to_which_no_controller_gives_a_config_is_named() -> None:
    fresh, behind = node("fresh", "", "", ""), node("behind", A, A)
    fleet = rollout_of(ClusterObjects([fresh, behind], [pool("worker", B)]))
    flags = {member.name: [gate.reason for gate in member.flags] for member in fleet.pools[0].members}
    assert flags == {"fresh": ["NoDesiredConfig"], "behind": []}
    assert "annotate the first one" in fleet.pools[0].members[1].flags[0].message
    assert rollout_of(ClusterObjects([fresh])).unmanaged == ["fresh"], "without pools no controller gives it one"


@pytest.mark.finding(
    "peers: nodes that end cordoned", "A node that ends cordoned says that a controller needs it uncordoned."
)
def test_a_node_that_ended_half_way_and_cordoned_is_named() -> None:
    """A machine-config-controller never gives a cordoned node another config."""
    failed = node("n", A, B, "Degraded", notes={MCO + "desiredDrain": f"drain-{B}"}, unschedulable=True)
    member = only(rollout_of(ClusterObjects([failed], [pool("worker", B)])))
    assert ["kubectl uncordon" in gate.message for gate in member.flags] == [True]
    assert only(rollout_of(ClusterObjects([failed]))).flags == []


def test_a_paused_pool_counts_like_all_others() -> None:
    behind = ClusterObjects([node("n")], [pool("worker", B, paused=True)])
    assert (rollout_of(behind).complete, rollout_of(behind).pools[0].paused) == (False, True)
    there = ClusterObjects([node("n", B)], [pool("worker", B, paused=True)])
    assert (rollout_of(there).complete, rollout_of(there).pools[0].paused) == (True, True)


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"nodeSelector": {"matchLabels": {ROLE + "worker": ""}}}},
        {"metadata": {"name": "worker", "generation": 3}},
        {"status": {"observedGeneration": 2, "conditions": [{"type": "RenderDegraded", "status": "True"}]}},
        {"status": {}},
    ],
)
def test_a_pool_whose_target_is_not_certain_is_not_complete(change: dict[str, Any]) -> None:
    fleet = rollout_of(ClusterObjects([node("n")], [{**pool("worker"), **change}]))
    assert len(fleet.pools[0].troubles) == 1
    assert not fleet.complete


def test_a_condition_that_is_false_is_no_trouble() -> None:
    fine = {
        **pool("worker"),
        "status": {"observedGeneration": 2, "conditions": [{"type": "RenderDegraded", "status": "False"}]},
    }
    assert rollout_of(ClusterObjects([node("n")], [fine])).complete


@pytest.mark.finding("peers: custom pools", "A node of `arbiter` and of another custom pool is in no pool.")
@pytest.mark.parametrize(
    ("roles", "name"),
    [
        (("worker",), "worker"),
        (("worker", "infra"), "infra"),
        (("master", "worker"), "master"),
        (("master", "worker", "infra"), "master"),
        (("arbiter", "worker"), "arbiter"),
        (("worker", "infra", "gpu"), None),
        (("worker", "infra", "arbiter"), None),
        (("master", "infra", "arbiter"), None),
        (("master", "arbiter"), "master"),
        (("other",), None),
        ((), None),
    ],
)
def test_a_node_has_one_pool(roles: tuple[str, ...], name: str | None) -> None:
    pools = [pool(name) for name in ("worker", "master", "arbiter", "infra", "gpu")]
    fleet = rollout_of(ClusterObjects([node("n", roles=roles)], pools))
    assert [pool.name for pool in fleet.pools if pool.members] == ([name] if name else [])
    assert fleet.unmanaged == ([] if name else ["n"])


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        ({"key": "x", "operator": "In", "values": ["1", "2"]}, True),
        ({"key": "x", "operator": "In", "values": ["2"]}, False),
        ({"key": "y", "operator": "In", "values": ["1"]}, False),
        ({"key": "x", "operator": "NotIn", "values": ["2"]}, True),
        ({"key": "x", "operator": "NotIn", "values": ["1"]}, False),
        ({"key": "y", "operator": "NotIn", "values": ["1"]}, True),
        ({"key": "x", "operator": "Exists"}, True),
        ({"key": "y", "operator": "Exists"}, False),
        ({"key": "x", "operator": "DoesNotExist"}, False),
        ({"key": "y", "operator": "DoesNotExist"}, True),
        ({"key": "x", "operator": "Gt", "values": ["0"]}, False),
    ],
)
def test_selectors(rule: dict[str, Any], matches: bool) -> None:
    some = pool("some", nodeSelector={"matchExpressions": [rule]})
    fleet = rollout_of(ClusterObjects([node("n", labels={"x": "1"})], [some]))
    assert bool(fleet.pools[0].members) is matches


@pytest.mark.parametrize("selector", [None, {}, {"matchLabels": {}}, {"matchLabels": {ROLE + "worker": "other"}}])
def test_an_empty_selector_matches_nothing(selector: Any) -> None:
    assert rollout_of(ClusterObjects([node("n")], [pool("worker", nodeSelector=selector)])).unmanaged == ["n"]


def test_windows_is_in_no_pool() -> None:
    assert rollout_of(
        ClusterObjects([node("n", labels={"kubernetes.io/os": "windows"})], [pool("worker")])
    ).unmanaged == ["n"]


def test_without_pools_nodes_are_grouped_and_each_has_its_own_target() -> None:
    nodes = [
        node("a"),
        node("b", roles=()),
        node("c", roles=("worker", "gpu")),
        node("d", roles=("control-plane", "etcd")),
        node("e", roles=("etcd",)),
        node("f", B, labels={"nodeagent.org/pool": "mine"}),
        node("g", labels={"nodeagent.org/pool": "mine"}),
        node("h", "", "", ""),
    ]
    fleet = rollout_of(ClusterObjects(nodes))
    assert {pool.name: [member.name for member in pool.members] for pool in fleet.pools} == {
        "control-plane": ["d"],
        "etcd": ["e"],
        "gpu": ["c"],
        "mine": ["f", "g"],
        "worker": ["a", "b"],
    }
    assert [pool.target for pool in fleet.pools] == [A, A, A, "", A]
    assert (fleet.complete, fleet.unmanaged) == (True, ["h"])


def lease(holder: str, renewed: str = "2026-01-01T00:00:00.000000Z", seconds: int = 60, **notes: str) -> dict[str, Any]:
    annotations = {f"nodeagent.org/{key}": value for key, value in notes.items()}
    spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": renewed}
    about = {"name": "node-n", "uid": "u", "resourceVersion": "1", "annotations": annotations}
    return {"metadata": about, "spec": spec}


NOW = 1767225600.0  # 2026-01-01T00:00:00Z


@pytest.mark.finding(
    "peers: holders that took a lease over",
    "`fleet status` shows a holder that took the lease over and kept the annotations of the previous one.",
)
@pytest.mark.parametrize(
    ("held", "now", "flag"),
    [
        (lease("node-maintenance"), NOW, "node-maintenance holds the node lease"),
        (lease("node-maintenance"), NOW + 61, ""),
        (lease("node-maintenance"), None, "node-maintenance holds the node lease"),
        (lease("jane/1", requester="jane", operation="1", reason="disks"), NOW, "jane holds the node lease: disks"),
        (lease("nodeagent/u1", requester="nodeagent", operation="u1"), NOW, ""),
        # medik8s keeps the annotations of the previous holder when it takes an expired lease over.
        (
            lease("node-maintenance", requester="nodeagent", operation="u1", reason="update to b"),
            NOW,
            "node-maintenance holds the node lease",
        ),
        (
            lease("nodeagent/maintenance.1", requester="nodeagent", operation="maintenance.1"),
            NOW,
            "nodeagent holds the node lease",
        ),
        (lease(""), NOW, ""),
    ],
)
def test_a_foreign_lease_is_a_flag(held: dict[str, Any], now: float | None, flag: str) -> None:
    fleet = rollout_of(ClusterObjects([node("n")], leases={"n": held}, now=now))
    assert [gate.message for gate in only(fleet).flags] == ([flag] if flag else [])
    assert fleet.complete, "who is in the way later does not undo what is done"


@pytest.mark.parametrize(
    ("found", "reasons"),
    [
        (node("n"), []),
        (node("n", unschedulable=True), ["Cordoned"]),
        (node("n", unschedulable=True, notes={"nodeagent.org/cordoned-by": "u1"}), []),
        (node("n", unschedulable=True, notes={MCO + "desiredDrain": f"drain-{A}"}), []),
        (node("n", unschedulable=True, notes={MCO + "desiredDrain": f"uncordon-{A}"}), ["Cordoned"]),
        (node("n", A, B, "Working"), []),
        (node("n", taints=[{"key": "node.kubernetes.io/out-of-service"}]), ["OutOfService"]),
        (node("n", taints=[{"key": "ToBeDeletedByClusterAutoscaler"}]), ["NodeLeaving"]),
        (node("n", taints=[{"key": "karpenter.sh/disrupted"}]), ["NodeLeaving"]),
        (node("n", taints=[{"key": "medik8s.io/remediation"}]), ["UnderMaintenance"]),
        (node("n", taints=[{"key": "node.cloudprovider.kubernetes.io/shutdown"}]), ["NodeLeaving"]),
        (
            node("n", taints=[{"key": "aws-node-termination-handler/spot-itn"}], unschedulable=True),
            ["Cordoned", "NodeLeaving"],
        ),
        (node("n", notes={"weave.works/kured-reboot-in-progress": "2026-11-26T00:00:00Z"}), ["UnderMaintenance"]),
        (node("n", taints=[{"key": "node.cluster.x-k8s.io/outdated-revision"}]), []),
        (node("n", taints=[{"key": "weave.works/kured-node-reboot"}]), []),
        # kured as it is shipped, Cluster API, system-upgrade-controller and kubectl drain leave a cordon only.
        (node("n", notes={"cluster.x-k8s.io/machine": "m"}, unschedulable=True), ["Cordoned"]),
    ],
)
def test_signs_on_the_node_are_flags(found: dict[str, Any], reasons: list[str]) -> None:
    assert [gate.reason for gate in only(rollout_of(ClusterObjects([found]))).flags] == reasons


@pytest.mark.parametrize(
    ("kind", "status", "reason", "flagged"),
    [
        ("MaintenanceInProgress", "True", "AdminRequested", True),
        ("MaintenancePlanned", "True", "SomebodyElse", True),
        ("MaintenancePlanned", "True", "UpdateRequested", False),  # it waits in the line of the update
        ("MaintenanceInProgress", "False", "AdminRequested", False),
        ("Ready", "True", "KubeletReady", False),
    ],
)
def test_conditions_of_a_maintenance_are_flags(kind: str, status: str, reason: str, flagged: bool) -> None:
    found = node("n")
    found["status"] = {"conditions": [{"type": kind, "status": status, "reason": reason, "message": "jane: disks"}]}
    flags = only(rollout_of(ClusterObjects([found]))).flags
    assert [gate.message for gate in flags] == ([f"{kind}: jane: disks"] if flagged else [])


def test_a_node_maintenance_is_a_flag_of_its_node() -> None:
    maintenances = [{"metadata": {"name": "m"}, "spec": {"nodeName": "n", "reason": "disks"}}]
    fleet = rollout_of(ClusterObjects([node("n"), node("o")], maintenances=maintenances))
    assert [len(member.flags) for member in fleet.pools[0].members] == [1, 0]


def test_an_answer_counts_what_it_lists() -> None:
    nodes = [node("a", B), node("b", A, B, "Working"), node("c"), node("d", A, B, "Degraded", unschedulable=True)]
    answer = rollout_to_dict(rollout_of(ClusterObjects(nodes, [pool("worker", B, paused=True)])), ["leases: no"])
    (found,) = answer["pools"]
    assert (answer["schema"], answer["complete"], answer["unknown"]) == ("nodeagent/fleet/v1", False, ["leases: no"])
    assert {key: found[key] for key in ("nodes", "updated", "updating", "pending", "degraded", "flagged")} == {
        "nodes": 4,
        "updated": 1,
        "updating": 1,
        "pending": 1,
        "degraded": 1,
        "flagged": 1,
    }
    assert [member["progress"] for member in found["members"]] == ["updated", "updating", "pending", "degraded"]
    assert found["members"][3]["flags"] == [
        {"reason": "Cordoned", "message": "the node is cordoned, and not by an update"}
    ]
