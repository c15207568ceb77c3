# SPDX-License-Identifier: Apache-2.0
"""Events of a Node on a real API server: valid, found by who looks, and few."""

from __future__ import annotations

from typing import Any

import pytest

from integration.cluster.cluster import Cluster
from integration.cluster.other_holders import client_of
from nodeagent.core.coordination.kube_time import parse_time
from nodeagent.errors import Refused
from nodeagent.features.cluster import node_events as module
from nodeagent.features.cluster.decide.conditions import LONGEST
from nodeagent.features.cluster.node_events import CONTROLLER, EVENTS, NodeEvents
from nodeagent.host.clock import SystemClock
from nodeagent.kube.errors import NotFound
from nodeagent.report.node_events import NodeEvent

BLOCKED = NodeEvent("DrainBlocked", "Evict", "shop/web-0: a disruption budget", warning=True)
DRAINED = NodeEvent("Drained", "Drain", "for the update to worker-2")
clock = SystemClock()


def there(cluster: Cluster, node: str) -> list[dict[str, Any]]:
    found = cluster.admin.get(EVENTS)["items"]
    return [event for event in found if event["regarding"]["name"] == node]


async def test_it_is_found_by_who_asks_for_the_node(cluster: Cluster, node: str) -> None:
    async with client_of(cluster) as client:
        await NodeEvents(client, node).write(BLOCKED, clock.monotonic())
    (event,) = there(cluster, node)
    assert (event["reason"], event["action"], event["note"]) == ("DrainBlocked", "Evict", BLOCKED.note)
    assert (event["type"], event["reportingController"]) == ("Warning", CONTROLLER)
    assert event["regarding"]["uid"] == cluster.admin.get(f"/api/v1/nodes/{node}")["metadata"]["uid"]
    (as_of_old,) = [
        each for each in cluster.admin.get("/api/v1/events")["items"] if each["involvedObject"]["name"] == node
    ]
    assert (as_of_old["reason"], as_of_old["message"]) == ("DrainBlocked", BLOCKED.note), "what kubectl describe reads"


async def test_again_and_again_is_one_series(cluster: Cluster, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with client_of(cluster) as client:
        events = NodeEvents(client, node)
        await events.write(BLOCKED, clock.monotonic())
        asked = client.requests
        for _ in range(100):
            await events.write(BLOCKED, clock.monotonic())
        assert client.requests == asked, "a look every three seconds is no write"
        await events.write(DRAINED, clock.monotonic())
        at = clock.monotonic() + module.WRITE_EVERY
        await events.write(BLOCKED, at)
        series, other = sorted(there(cluster, node), key=lambda event: str(event["reason"]))
        assert series["series"]["count"] == 102
        assert other.get("series") is None
        observed = parse_time(series["series"]["lastObservedTime"])
        first = parse_time(series["eventTime"])
        assert observed is not None
        assert first is not None
        assert module.WRITE_EVERY - 1 < observed - first < module.WRITE_EVERY + 60
        await events.write(BLOCKED, at + module.FORGET_AFTER + 1)
        assert len(there(cluster, node)) == 3, "after so long it is news again"
        cluster.admin.delete(f"{EVENTS}/{series['metadata']['name']}")
        monkeypatch.setattr(module, "WRITE_EVERY", 0.0)
        for event in there(cluster, node):
            cluster.admin.delete(f"{EVENTS}/{event['metadata']['name']}")
        await events.write(BLOCKED, at + module.FORGET_AFTER + 2)
        assert len(there(cluster, node)) == 1, "the API server keeps events for an hour only"


async def test_a_long_one_and_one_that_happened_before(cluster: Cluster, node: str) -> None:
    async with client_of(cluster) as client:
        events = NodeEvents(client, node)
        await events.write(NodeEvent("UpdateWaiting", "Wait", "\u00e4" * LONGEST), clock.monotonic() - 1800)
    (event,) = there(cluster, node)
    happened, made = parse_time(event["eventTime"]), parse_time(event["metadata"]["creationTimestamp"])
    assert happened is not None
    assert made is not None
    assert 1795 < made - happened < 1860
    assert len(event["note"].encode()) == 1000


async def test_there_is_an_end_to_how_many(cluster: Cluster, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 5)
    async with client_of(cluster) as client:
        events, at = NodeEvents(client, node), clock.monotonic()
        for number in range(20):
            await events.write(NodeEvent("UpdateWaiting", "Wait", f"for {number}"), at)
        assert sorted(event["note"] for event in there(cluster, node)) == [
            *(f"for {number}" for number in range(4)),
            module.TOO_MANY.note,
        ]
        await events.write(DRAINED, at + module.HOUR + 1)
        assert len(there(cluster, node)) == 6, "the next hour has its own"


async def test_a_node_that_is_not_there(cluster: Cluster) -> None:
    async with client_of(cluster) as client:
        with pytest.raises(Refused) as caught:
            await NodeEvents(client, "nobody").write(BLOCKED, clock.monotonic())
    assert caught.value.reason == "NodeUnknown"
    assert not isinstance(caught.value, NotFound)
