# SPDX-License-Identifier: Apache-2.0
"""What a node costs that waits for a slot: requests are counted at the protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nodeagent.core.coordination.lease import HostIdentity
from nodeagent.errors import OutOfTurn, Refused
from nodeagent.features.slots.decide.pool import SlotKind, SlotPool
from nodeagent.features.slots.leases import KubeSlots
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from nodeagent.reasons import Reason
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.stages.coordination import Coordination, Operation
from tests.kube.server import Answer, Request, Server, serving
from tests.kube.test_client import Clock, kubeconfig
from tests.world import FakeLease, World

UPDATE = Operation("3f2b", "nodeagent", "update to new")


def slot(index: int, holder: str) -> dict[str, Any]:
    """A slot of the pool ``p``; ``holder`` "" is a free one."""
    return {
        "metadata": {
            "name": f"slot-disrupt-p-{index}",
            "uid": f"u{index}",
            "resourceVersion": "1",
            "annotations": {"nodeagent.org/operation": "1", "nodeagent.org/instance": f"host-of-{holder}"},
            "ownerReferences": [{"kind": "Node", "name": holder, "uid": f"uid-of-{holder}"}] if holder else [],
        },
        "spec": {"holderIdentity": f"{holder}/1"} if holder else {},
    }


class Pool:
    """An API server with the slots of a pool and the Node of this host."""

    def __init__(self, *holders: str) -> None:
        self.slots = [slot(index, holder) for index, holder in enumerate(holders)]

    def __call__(self, request: Request) -> Answer:
        if "/leases" not in request.target:
            return Answer(body={"metadata": {"name": "n", "uid": "uid-of-n", "resourceVersion": "1"}})
        if request.method == "GET":
            return Answer(body={"items": self.slots})
        return Answer(409, {"reason": "AlreadyExists", "message": "it exists"})


class Asked(FakeLease):
    """The lease and the other actors of the node, which note each call."""

    def __init__(self, calls: list[str]) -> None:
        super().__init__(World())
        self.calls = calls

    async def release(self, operation: str) -> None:
        self.calls.append("release of the lease")

    async def holder(self) -> Holder | None:
        self.calls.append("holder")
        return None

    async def check(self, operation: str = "", *, need: float = 0.0, offline: bool = False) -> None:
        self.calls.append("check")

    async def hold_machine(self) -> None:
        self.calls.append("hold")

    async def free_machine(self) -> None:
        self.calls.append("free")


@asynccontextmanager
async def node(directory: Path, pool: Pool, calls: list[str]) -> AsyncIterator[tuple[Server, Coordination]]:
    async with serving(None) as server:
        server.answer = pool
        path = kubeconfig(directory, f"http://127.0.0.1:{server.port}", token="t")
        async with KubeClient(ClusterAccess(str(path), private=str(directory)), Clock(), timeout=10.0) as client:
            about = SlotPool("p", SlotKind.DISRUPT, len(pool.slots))
            slots = KubeSlots(client, HostIdentity("n", "host-of-n"), about, Clock())
            asked = Asked(calls)
            yield server, Coordination(asked, slot=slots, gates=asked)


@pytest.mark.finding(
    "cluster: cost of a failed attempt", "A failed attempt for a slot is one small request, and releases nothing."
)
async def test_a_node_without_a_free_slot_asks_once_and_for_nothing_else(tmp_path: Path) -> None:
    calls: list[str] = []
    async with node(tmp_path, Pool("a", "b"), calls) as (server, coordination):
        # After a restart it may have something: that is released once.
        with pytest.raises(OutOfTurn):
            await coordination.acquire(UPDATE)
        assert "release of the lease" in calls
        calls.clear()
        server.requests.clear()
        for _ in range(3):
            with pytest.raises(OutOfTurn) as caught:
                await coordination.acquire(UPDATE)
        assert caught.value.message.startswith("2 of 2 slots (disrupt) of pool p are held: a, b")
        assert caught.value.brief == "2 of 2 slots (disrupt) of pool p are held"
        assert calls == []
        assert [request.target.partition("?")[0].rpartition("/")[2] for request in server.requests] == ["leases"] * 3


async def test_a_slot_that_others_take_at_the_same_moment_is_not_released(tmp_path: Path) -> None:
    calls: list[str] = []
    pool = Pool("a", "")
    async with node(tmp_path, pool, calls) as (server, coordination):
        with pytest.raises(Refused):
            await coordination.acquire(UPDATE, refused)
        calls.clear()

        def taken(request: Request) -> Answer:
            answer = Pool.__call__(pool, request)
            if request.method == "PATCH":
                pool.slots[1] = slot(1, "b")
            return answer

        server.answer = taken
        with pytest.raises(OutOfTurn):
            await coordination.acquire(UPDATE)
    assert "release of the lease" not in calls


async def refused() -> None:
    raise Refused("a check fails", reason=Reason.REFUSED)


async def test_what_a_former_attempt_left_is_released(tmp_path: Path) -> None:
    """It took the slot, and the API server went away before the lease."""
    calls: list[str] = []
    async with node(tmp_path, Pool("n", "b"), calls) as (server, coordination):
        with pytest.raises(Refused):
            await coordination.acquire(UPDATE, refused)
        assert calls.count("release of the lease") == 1
        writes = [request.method for request in server.requests if request.method != "GET"]
    assert writes == [], "the slot is that of another operation"
