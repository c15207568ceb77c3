# SPDX-License-Identifier: Apache-2.0
"""When bootc-operator disrupts a node. Objects as its controller and its daemon write them."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.features.cluster.decide.bootc_node import BootcNode, bootc_gates, is_managed
from tests.kube.test_client import thing

OLD, NEW = (f"sha256:{digit * 64}" for digit in "12")
IMAGE = f"quay.io/example/os@{NEW}"
TURN = {"bootc.dev/in-reboot-slot": "", "bootc.dev/was-cordoned": "false"}


def bootc_node(state: str, booted: str, notes: dict[str, str] | None = None) -> BootcNode:
    meta = {**thing("n")["metadata"], "annotations": notes or {}}
    spec = {"desiredImage": IMAGE, "desiredImageState": state}
    return BootcNode(metadata=meta, spec=spec, status={"booted": {"imageDigest": booted}})  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("object_", "message"),
    [
        (bootc_node("Staged", OLD), ""),
        (bootc_node("Staged", OLD, TURN), f"bootc-operator updates the node to {IMAGE}"),
        (bootc_node("Booted", OLD, TURN), f"bootc-operator updates the node to {IMAGE}"),
        # The node has the image, and is not ready yet.
        (bootc_node("Booted", NEW, TURN), f"bootc-operator updates the node to {IMAGE}"),
        (bootc_node("Booted", OLD), f"bootc-operator is about to reboot the node into {IMAGE}"),
        (bootc_node("Booted", NEW), ""),
        # Before the daemon has written anything, and with a controller that has not.
        ({"metadata": thing("n")["metadata"], "spec": {"desiredImage": IMAGE, "desiredImageState": "Staged"}}, ""),
        ({"metadata": thing("n")["metadata"], "spec": None, "status": None}, ""),
        (
            {"metadata": thing("n")["metadata"], "spec": {"desiredImageState": "Booted"}, "status": {"booted": None}},
            "bootc-operator is about to reboot the node into another image",
        ),
    ],
)
def test_when_the_operator_disrupts_the_node(object_: BootcNode, message: str) -> None:
    gates = bootc_gates(object_)
    assert [gate.message for gate in gates] == ([message] if message else [])
    assert {gate.reason for gate in gates} <= {"BootcOperator"}


@pytest.mark.parametrize(
    ("labels", "managed"),
    [(None, False), ({}, False), ({"bootc.dev/managed": ""}, True), ({"bootc.dev/managed": "true"}, True)],
)
def test_a_label_shows_that_it_manages_the_node(labels: Any, managed: bool) -> None:
    meta = {**thing("n")["metadata"], "labels": labels}
    assert is_managed({"metadata": meta}) is managed  # type: ignore[typeddict-item]
