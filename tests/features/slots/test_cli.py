# SPDX-License-Identifier: Apache-2.0
"""`nodeagent fleet` against a server with a few nodes: what is printed, and how it ends."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from nodeagent.cli.main import main
from tests.features.slots.decide.test_rollout import A, B, lease, node, pool
from tests.features.slots.decide.test_stuck import slot
from tests.kube.fleet import Fleet, fleet
from tests.kube.server import Answer
from tests.support.golden import Golden

__all__ = ["fleet"]

POOLS = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools"
SLOTS = "/apis/coordination.k8s.io/v1/namespaces/nodeagent/leases"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/medik8s-leases/leases"


def nodes(*found: dict[str, Any]) -> dict[str, Any]:
    return {"/api/v1/nodes": list(found)}


async def test_complete(fleet: Fleet, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    fleet.api.lists = nodes(node("w1", B), node("w2", B)) | {POOLS: [pool("worker", B)]}
    assert await fleet.status() == 0
    golden("fleet", "complete", capsys.readouterr().out)


async def test_in_the_middle(fleet: Fleet, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    waiting = node("w2", A, B, "Working", notes={"machineconfiguration.openshift.io/reason": "LeaseHeld: jane\x1b[2J"})
    held = lease("jane/1", seconds=10**9, requester="jane")
    held["metadata"] |= {"name": "node-w2", "annotations": {}}
    fleet.api.lists = nodes(
        node("cp1", roles=("master",)), node("w1", B), waiting, node("w3", unschedulable=True), node("x", roles=())
    ) | {
        POOLS: [pool("worker", B, paused=True), pool("master")],
        LEASES: [held],
    }
    assert await fleet.status() == 4
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    golden("fleet", "in the middle", printed)


@pytest.mark.finding("cluster: length of the fleet status", "5,000 nodes that are not updated fit on two screens.")
async def test_a_large_fleet_is_grouped_by_reasons(
    fleet: Fleet, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    def waiting(number: int, reason: str = "", state: str = "Working", **spec: Any) -> dict[str, Any]:
        # The holders that are named differ from node to node.
        text = reason or f"SlotHeld: 8 of 8 slots of pool worker are held: w{number % 7}"
        notes = {"machineconfiguration.openshift.io/reason": text}
        return node(f"w{number:04}", A, B, state, notes=notes, **spec)

    fleet.api.lists = nodes(
        *(waiting(number) for number in range(4980)),
        *(waiting(number, unschedulable=True) for number in range(4980, 4990)),
        *(waiting(number, "JobFailed: restart app.service failed", "Degraded") for number in range(4990, 4993)),
        *(waiting(number, "Writing") for number in range(4993, 5000)),
    ) | {POOLS: [pool("worker", B)]}
    assert await fleet.status() == 1
    printed = capsys.readouterr().out
    golden("fleet", "of 5,000 nodes", printed)
    assert len(printed.splitlines()) < 50
    assert await fleet.status("--all") == 1
    assert len(capsys.readouterr().out.splitlines()) == 5000 + 6


async def test_reasons_without_end_are_counted(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    notes = [{"machineconfiguration.openshift.io/reason": f"Reason{number}: x"} for number in range(300)]
    found = [node(f"w{number}", A, B, "Working", notes=note) for number, note in enumerate(notes)]
    fleet.api.lists = nodes(*found) | {POOLS: [pool("worker", B)]}
    assert await fleet.status() == 4
    printed = capsys.readouterr().out
    assert "280 more nodes with 280 other reasons; --all lists each node" in printed
    assert len(printed.splitlines()) < 50


@pytest.mark.finding("cluster: dead slot holders", "`fleet status` names a slot that no holder gives back.")
async def test_a_slot_of_a_dead_holder_is_named(
    fleet: Fleet, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    held = [slot("w9/u1", "w9"), slot("w1/u1", "w1")]
    held[1]["metadata"] |= {"name": "slot-disrupt-workers-1"}
    fleet.api.lists = nodes(node("w1", A, B, "Working")) | {POOLS: [pool("worker", B)], SLOTS: held}
    assert await fleet.status() == 4
    golden("fleet", "a dead holder", capsys.readouterr().out)
    await fleet.status("--json")
    (stuck,) = json.loads(capsys.readouterr().out)["stuck_slots"]
    assert (stuck["node"], stuck["command"]) == ("w9", "kubectl delete lease -n nodeagent slot-disrupt-workers-0")


async def test_degraded(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    fleet.api.lists = nodes(node("w1", A, B, "Degraded"), node("w2", A, B, "Working")) | {POOLS: [pool("worker", B)]}
    assert await fleet.status("--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["schema"], answer["complete"]) == ("nodeagent/fleet/v1", False)
    assert answer["pools"][0]["degraded"] == 1


async def test_forbidden_objects_are_reported(fleet: Fleet, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    denied = Answer(403, {"message": "cannot list leases"})
    fleet.api.lists = nodes(node("w1")) | {LEASES: denied}
    assert await fleet.status() == 0
    assert "not known, so flags may be missing: " in (printed := capsys.readouterr().out)
    assert "cannot list leases" in printed
    fleet.api.lists = {"/api/v1/nodes": denied}
    assert await fleet.status() == 4
    golden("fleet", "forbidden", capsys.readouterr().err)


async def test_an_empty_fleet_is_not_complete(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    fleet.api.lists = nodes(node("x", "", "", ""))
    assert await fleet.status("--json") == 4
    assert json.loads(capsys.readouterr().err)["reason"] == "NoFleet"


async def test_unreachable_server(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    fleet.api.away = True
    assert await fleet.status() == 5
    printed = capsys.readouterr().err
    assert printed.startswith("nodeagent: KubeUnreachable: ")
    assert "very-secret" not in printed


async def test_which_kubeconfig(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.api.lists = nodes(node("w1"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert await asyncio.to_thread(main, ["fleet", "status"]) == 2
    assert "KubeconfigInvalid: there is no kubeconfig in ~/.kube/config" in capsys.readouterr().err
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing:{fleet.path}")
    assert await asyncio.to_thread(main, ["fleet", "status"]) == 0
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing")
    assert await asyncio.to_thread(main, ["fleet", "status"]) == 2
    assert await fleet.status("--context", "other") == 2
    assert "KubeconfigInvalid" in capsys.readouterr().err
