# SPDX-License-Identifier: Apache-2.0
"""How a slot is taken, and what follows if the API server refuses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from nodeagent.core.coordination.kube_objects import LeaseObject
from nodeagent.core.coordination.lease import HostIdentity
from nodeagent.errors import AgentError, Retryable, Terminal
from nodeagent.features.slots.decide.pool import SlotKind, SlotPool
from nodeagent.features.slots.leases import WRITES, KubeSlots
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import Conflict, NotFound
from tests.world import FakeClock, World


class ServerClock:
    def earliest(self, at: float) -> float:
        return at


class Server:
    """An API server whose slots do not exist yet. ``error`` is the answer to their creation."""

    server_clock = ServerClock()

    def __init__(self, error: AgentError | None) -> None:
        self.error = error
        self.created = 0

    async def node(self, name: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "uid": "u"}}

    async def objects(self, *_: object, **__: object) -> Sequence[LeaseObject]:
        return ()

    async def create(self, _path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.created += 1
        if self.error is not None:
            raise self.error
        return {**body, "metadata": {**body["metadata"], "uid": "u", "resourceVersion": "1"}}


def slots(server: Server) -> KubeSlots:
    client = cast("KubeClient", server)
    return KubeSlots(client, HostIdentity("n", "i"), SlotPool("p", SlotKind.DISRUPT, 1), FakeClock(World()))


@pytest.mark.looptime
async def test_a_slot_that_does_not_exist_is_created() -> None:
    server = Server(None)
    pool = SlotPool("p", SlotKind.DISRUPT, 1)
    assert await slots(server).acquire("nodeagent", "op", "why") == pool.lease(0)
    assert server.created == 1


@pytest.mark.looptime
async def test_without_its_namespace_no_slot_can_be_created() -> None:
    server = Server(NotFound("the namespace does not exist"))
    with pytest.raises(Terminal) as caught:
        await slots(server).acquire("nodeagent", "op", "why")
    assert (caught.value.reason, server.created) == ("LeaseNamespaceMissing", 1)


@pytest.mark.looptime
async def test_a_slot_that_another_node_takes_each_time_is_contended() -> None:
    server = Server(Conflict("it exists"))
    with pytest.raises(Retryable) as caught:
        await slots(server).acquire("nodeagent", "op", "why")
    assert (caught.value.reason, server.created) == ("SlotContended", WRITES)
