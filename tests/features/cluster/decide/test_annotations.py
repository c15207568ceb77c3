# SPDX-License-Identifier: Apache-2.0
"""The annotations between the agent and a machine-config-controller."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nodeagent
from nodeagent.core.config.parse import parse
from nodeagent.core.coordination.annotations import (
    CURRENT,
    DESIRED,
    DRAIN,
    DRAINED,
    MAX_REASON,
    REASON,
    RETRY,
    STATE,
    ControllerRequest,
    DaemonState,
    clean,
    read_request,
)
from nodeagent.features.cluster.decide.annotations import (
    NodeAnnotations,
    annotations_for,
    differing,
    drain_request,
    is_name,
    source_of,
    uncordon_request,
)
from nodeagent.features.cluster.decide.drain import PodWait, Remaining
from nodeagent.features.cluster.events import DrainProgress
from nodeagent.kinds import Kind
from nodeagent.reasons import known_reasons
from nodeagent.report.status import Status
from nodeagent.update.states import Phase

A, B = "rendered-worker-a", "rendered-worker-b"


def noted(*, unschedulable: bool = False, **notes: str) -> ControllerRequest:
    names = {"desired": DESIRED, "current": CURRENT, "drain": DRAIN, "drained": DRAINED, "retry": RETRY}
    found = {"annotations": {names[key]: value for key, value in notes.items()}}
    return read_request({"metadata": found, "spec": {"unschedulable": unschedulable}})


@pytest.mark.parametrize("found", [{"metadata": {}}, {"metadata": {"annotations": None}, "spec": None}])
def test_a_node_without_annotations_orders_nothing(found: dict[str, Any]) -> None:
    assert read_request(found) == ControllerRequest()


def test_orders_are_read_from_the_known_keys() -> None:
    prefix = "machineconfiguration.openshift.io/"
    notes = {
        **{prefix + key: key for key in ("desiredConfig", "desiredImage", "currentConfig", "state", "reason")},
        prefix + "desiredDrain": "drain-x",
        prefix + "lastAppliedDrain": "uncordon-x",
        "nodeagent.org/retry": "x",
    }
    assert read_request({"metadata": {"annotations": notes}, "spec": {"unschedulable": True}}) == ControllerRequest(
        "desiredConfig", "desiredImage", "currentConfig", "state", "reason", "drain-x", "uncordon-x", "x", True, True
    )


@pytest.mark.parametrize(
    ("topology", "single"), [("SingleReplica", True), ("HighlyAvailable", False), ("DualReplica", False)]
)
def test_the_topology_is_a_sign_of_a_controller(topology: str, single: bool) -> None:
    notes = {"machineconfiguration.openshift.io/controlPlaneTopology": topology}
    asked = read_request({"metadata": {"annotations": notes}})
    assert (asked.controlled, asked.single) == (True, single)


@pytest.mark.finding(
    "peers: pods that are left",
    "While a controller drains, the pods that are left are in the status, and those that block it in `reason`.",
)
@pytest.mark.parametrize(
    ("status", "state", "reason", "verified"),
    [
        (Status(Phase.IDLE, current=A, desired=A), DaemonState.DONE, "", True),
        # Taken over by a newer one: the old config is in force, as verified.
        (Status(Phase.IDLE, "Superseded", "a newer one", current=A), DaemonState.DONE, "", True),
        (Status(Phase.STAGING, current=A, desired=B), DaemonState.WORKING, "", False),
        (
            Status(Phase.LEASING, "LeaseHeld", "jane holds it", current=A),
            DaemonState.WORKING,
            "LeaseHeld: jane holds it",
            False,
        ),
        (
            Status(Phase.DRAINING).with_part(
                DrainProgress([Remaining("db", "a", PodWait.REQUESTED), Remaining("db", "b", PodWait.BUDGET)])
            ),
            DaemonState.WORKING,
            "DrainBlocked: waits for db/b",
            False,
        ),
        (
            Status(Phase.DRAINING).with_part(DrainProgress([Remaining("db", "a", PodWait.REQUESTED)])),
            DaemonState.WORKING,
            "",
            False,
        ),
        (Status(Phase.REVERTING, "ActionFailed", "", current=A), DaemonState.WORKING, "ActionFailed", False),
        (Status(Phase.RELEASING, current=B), DaemonState.WORKING, "", False),
        # Who has the slot changes with each handover, and each write of a Node goes to all who watch Nodes.
        (
            Status(Phase.LEASING, "SlotHeld", "no slot is free: a has it", brief="no slot is free"),
            DaemonState.WORKING,
            "SlotHeld: no slot is free",
            False,
        ),
        (Status(Phase.DEGRADED, "Drifted", "2 files", current=A), DaemonState.DEGRADED, "Drifted: 2 files", False),
        (Status(Phase.DEGRADED, "Reverted", "x", current=A), DaemonState.DEGRADED, "Reverted: x", False),
        (
            Status(Phase.DEGRADED, "Unreconcilable", "fips", current=A),
            DaemonState.UNRECONCILABLE,
            "Unreconcilable: fips",
            False,
        ),
    ],
)
def test_annotations_of_a_status(status: Status, state: DaemonState, reason: str, verified: bool) -> None:
    assert annotations_for(status) == NodeAnnotations(state, reason, status.current, verified)


def test_each_phase_has_one_of_four_states() -> None:
    states = {phase: annotations_for(Status(phase, current=A)) for phase in Phase}
    assert {phase for phase, one in states.items() if one and one.state is DaemonState.DONE} == {Phase.IDLE}
    assert {phase for phase, one in states.items() if one and one.state is DaemonState.DEGRADED} == {Phase.DEGRADED}
    assert all(states.values())


def test_nothing_is_reported_before_the_first_config() -> None:
    assert annotations_for(Status()) is None


@pytest.mark.long
def test_the_reasons_of_unreconcilable_are_all_that_are_raised_with_it() -> None:
    found = set()
    for path in Path(nodeagent.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Unreconcilable":
                given = [ast.unparse(word.value) for word in call.keywords if word.arg == "reason"]
                found.add(given[0] if given else "Reason.UNRECONCILABLE")
    reasons = [reason for reason in known_reasons() if reason.kind is Kind.UNRECONCILABLE]
    assert found == {f"{type(reason).__name__}.{reason.name}" for reason in reasons}
    for reason in reasons:
        said = annotations_for(Status(Phase.DEGRADED, reason, current=A))
        assert said is not None
        assert said.state is DaemonState.UNRECONCILABLE


@pytest.mark.parametrize(
    ("asked", "said", "written"),
    [
        (ControllerRequest(), NodeAnnotations(DaemonState.DONE, "", A, True), {STATE: "Done", CURRENT: A}),
        (ControllerRequest(current=A, state="Done"), NodeAnnotations(DaemonState.DONE, "", A, True), {}),
        # Promoted with the verification, never before it.
        (
            ControllerRequest(current=A, state="Done"),
            NodeAnnotations(DaemonState.WORKING, "", B, False),
            {STATE: "Working"},
        ),
        (
            ControllerRequest(current=A, state="Working"),
            NodeAnnotations(DaemonState.DONE, "", B, True),
            {STATE: "Done", CURRENT: B},
        ),
        (
            ControllerRequest(current=A, state="Working", reason="x"),
            NodeAnnotations(DaemonState.DEGRADED, "y", A, False),
            {STATE: "Degraded", REASON: "y"},
        ),
        (
            ControllerRequest(current=A, state="Degraded", reason="x"),
            NodeAnnotations(DaemonState.DONE, "", A, True),
            {STATE: "Done", REASON: ""},
        ),
        # The Node was made again in the middle of an update.
        (ControllerRequest(), NodeAnnotations(DaemonState.WORKING, "", A, False), {STATE: "Working", CURRENT: A}),
        (ControllerRequest(), NodeAnnotations(DaemonState.WORKING, "", "", False), {STATE: "Working"}),
    ],
)
def test_only_what_differs_is_written(asked: ControllerRequest, said: NodeAnnotations, written: dict[str, str]) -> None:
    assert differing(said, asked) == written


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a\nb\r\n\tc", "a b c"),
        ("  x\x00\x1b[31m ", "x [31m"),
        ("Authorization: Bearer abcdefghijkl", "Authorization: [redacted]"),
        ("token:\n  abc", "token: [redacted]"),
        ("x" * MAX_REASON, "x" * MAX_REASON),
        ("x" * (MAX_REASON + 1), "x" * (MAX_REASON - 3) + "..."),
    ],
)
def test_a_reason_is_clean(text: str, reason: str) -> None:
    assert clean(text) == reason


@given(st.text())
def test_a_reason_is_one_bounded_line(text: str) -> None:
    reason = clean(text)
    assert len(reason) <= MAX_REASON
    assert reason == reason.strip()
    assert "\n" not in reason


def config(name: str = A, **more: Any) -> dict[str, Any]:
    kind = {"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig"}
    return {**kind, "metadata": {"name": name}, "spec": {"config": {"ignition": {"version": "3.4.0"}}, **more}}


def test_a_config_of_the_cluster_parses() -> None:
    source = source_of(config(kernelArguments=["quiet"]))
    assert source.name == A
    assert parse(source.text).kernel_arguments == ("quiet",)


def test_what_a_server_adds_does_not_change_the_digest() -> None:
    plain = source_of(config())
    served = config()
    served["metadata"] |= {"uid": "1", "resourceVersion": "7", "annotations": {"a": "b"}, "managedFields": [{}]}
    served["status"] = {"x": 1}
    ours = {**config(), "apiVersion": "nodeagent.org/v1"}
    assert source_of(served) == plain
    assert source_of(ours) == plain
    assert source_of(config(fips=True)).digest != plain.digest


def test_unknown_fields_survive() -> None:
    found = {**config(future={"deep": [1, {"x": None}]}), "alsoNew": 1}
    document = json.loads(source_of(found).text)
    assert document["spec"]["future"] == {"deep": [1, {"x": None}]}
    assert document["alsoNew"] == 1


@pytest.mark.parametrize("name", [A, "a", "a.b-c.9", "x" * 253])
def test_names_of_objects(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a/b", "a%2Fb", "../x", "a b", "a\n", "x" * 254, "."])
def test_what_is_no_name_is_no_path_either(name: str) -> None:
    assert not is_name(name)


@pytest.mark.parametrize(
    ("asked", "wish"),
    [
        (noted(), f"drain-{A}"),
        (noted(drain=f"uncordon-{B}", drained=f"uncordon-{B}"), f"drain-{A}"),
        (noted(drain=f"drain-{B}", drained=f"drain-{B}", unschedulable=True), f"drain-{A}"),
        (noted(drain=f"drain-{A}"), f"drain-{A}"),
        (noted(drain=f"drain-{A}", drained=f"uncordon-{B}", unschedulable=True), f"drain-{A}"),
        (noted(drain=f"drain-{A}", drained=f"drain-{A}", unschedulable=True), None),
        # Another client uncordoned the node after the drain: pods came back, and the same value would not be acted on.
        (noted(drain=f"drain-{A}", drained=f"drain-{A}"), f"drain-{A}-"),
        (noted(drain=f"drain-{A}-", drained=f"drain-{A}"), f"drain-{A}-"),
        (noted(drain=f"drain-{A}-", drained=f"drain-{A}-", unschedulable=True), None),
    ],
)
def test_asking_for_a_drain(asked: ControllerRequest, wish: str | None) -> None:
    assert drain_request(asked, A) == wish


@pytest.mark.parametrize(
    ("asked", "wish"),
    [
        (noted(), None),
        (noted(drain=f"uncordon-{A}", drained=f"uncordon-{A}"), None),
        (noted(drain=f"uncordon-{A}", drained=f"drain-{A}"), f"uncordon-{A}"),
        (noted(drain=f"drain-{A}", drained=f"drain-{A}"), f"uncordon-{A}"),
        (noted(drain=f"drain-{A}--", drained=f"drain-{A}"), f"uncordon-{A}"),
        (noted(drain=f"drain-{A}"), f"uncordon-{A}"),  # given up before it was answered
    ],
)
def test_asking_for_the_end_of_it(asked: ControllerRequest, wish: str | None) -> None:
    assert uncordon_request(asked) == wish
