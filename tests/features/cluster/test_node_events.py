# SPDX-License-Identifier: Apache-2.0
"""Events of the Node: what one has, when it is a series, and how many there are in an hour."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from nodeagent.errors import AgentError
from nodeagent.features.cluster import node_events as events
from nodeagent.features.cluster.node_events import EVENTS, FORGET_AFTER, HOUR, MOST, WRITE_EVERY, NodeEvents
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from nodeagent.report.node_events import NodeEvent
from tests.kube.server import Answer, Request, serving
from tests.kube.test_client import kubeconfig, thing

DRAIN: Final = NodeEvent("Draining", "Drain", "pods leave", False)
BLOCKED: Final = NodeEvent("DrainBlocked", "Drain", "a budget blocks it", True)
START: Final = 1000.0


class Clock:
    """Stands, so that the time of the server follows from that of an event: 9:00 is ``START``."""

    def now(self) -> str:
        return "2026-11-21T09:00:00.000Z"

    def monotonic(self) -> float:
        return START


class Api:
    """A node, and a list of Events. Each of ``refused`` is the status of one answer for an Event."""

    def __init__(self) -> None:
        self.asked = 0
        self.made: list[dict[str, Any]] = []
        self.patches: list[tuple[str, dict[str, Any]]] = []
        self.refused: list[int] = []

    def __call__(self, request: Request) -> Answer:
        if request.method == "GET":
            self.asked += 1
            return Answer(body=thing("n"))
        if self.refused:
            return Answer(self.refused.pop(0), {"message": "no"})
        if request.method == "POST":
            self.made.append(request.body)
        else:
            self.patches.append((request.target.removeprefix(f"{EVENTS}/").partition("?")[0], request.body["series"]))
        return Answer(body=request.body)


@asynccontextmanager
async def writing(directory: Path, api: Api, node: str = "n") -> AsyncIterator[NodeEvents]:
    async with serving(None) as server:
        server.answer = api
        path = kubeconfig(directory, f"http://127.0.0.1:{server.port}", token="t")
        async with KubeClient(ClusterAccess(str(path), private=str(directory)), Clock(), timeout=10.0) as client:
            yield NodeEvents(client, node)


async def test_an_event_is_about_the_node(tmp_path: Path) -> None:
    api = Api()
    async with writing(tmp_path, api) as written:
        await written.write(DRAIN, START - 60.0)
        await written.write(BLOCKED, START)
    first, second = api.made
    name = first["metadata"].pop("name")
    assert name.startswith("n.")
    assert name != second["metadata"]["name"]
    assert first == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "default"},
        "eventTime": "2026-11-21T08:59:00.000000Z",
        "reportingController": "nodeagent.org/agent",
        "reportingInstance": "n",
        "type": "Normal",
        "reason": "Draining",
        "action": "Drain",
        "note": "pods leave",
        "regarding": {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"},
    }
    assert second["type"] == "Warning"
    assert api.asked == 1, "the uid stays"


async def test_long_texts_are_cut(tmp_path: Path) -> None:
    api = Api()
    async with writing(tmp_path, api, "n" * 200) as written:
        await written.write(NodeEvent("A", "B", "x" + "ü" * 1000), START)
    assert api.made[0]["reportingInstance"] == "n" * 128
    assert api.made[0]["note"] == "x" + "ü" * 499


async def test_a_repeated_event_is_a_series_that_is_rarely_written(tmp_path: Path) -> None:
    api = Api()
    async with writing(tmp_path, api) as written:
        for seconds in (0.0, 1.0, WRITE_EVERY - 1, WRITE_EVERY, WRITE_EVERY + 1, 2 * WRITE_EVERY):
            await written.write(DRAIN, START + seconds)
    (made,) = api.made
    assert api.patches == [
        (made["metadata"]["name"], {"count": 4, "lastObservedTime": "2026-11-21T09:05:00.000000Z"}),
        (made["metadata"]["name"], {"count": 6, "lastObservedTime": "2026-11-21T09:10:00.000000Z"}),
    ]


async def test_after_a_long_pause_it_is_a_new_event(tmp_path: Path) -> None:
    api = Api()
    async with writing(tmp_path, api) as written:
        await written.write(DRAIN, START)
        # The pause is that after the last one, written or not.
        await written.write(DRAIN, START + 100.0)
        await written.write(DRAIN, START + 100.0 + FORGET_AFTER)
        assert (len(api.made), len(api.patches)) == (1, 1)
        await written.write(DRAIN, START + 100.1 + 2 * FORGET_AFTER)
    assert (len(api.made), len(api.patches)) == (2, 1)


async def test_a_series_that_the_server_has_deleted_is_a_new_event(tmp_path: Path) -> None:
    api = Api()
    async with writing(tmp_path, api) as written:
        await written.write(DRAIN, START)
        api.refused = [404]
        await written.write(DRAIN, START + WRITE_EVERY)
        await written.write(DRAIN, START + 2 * WRITE_EVERY)
    names = [made["metadata"]["name"] for made in api.made]
    assert len(set(names)) == 2
    assert [(name, series["count"]) for name, series in api.patches] == [(names[1], 2)]


async def test_what_the_server_refuses_is_written_the_next_time(tmp_path: Path) -> None:
    api = Api()
    async with writing(tmp_path, api) as written:
        for refused_at in (START, START + WRITE_EVERY):
            api.refused = [403]
            with pytest.raises(AgentError):
                await written.write(DRAIN, refused_at)
            await written.write(DRAIN, refused_at)
    assert (len(api.made), [series["count"] for _, series in api.patches]) == (1, [2])


async def test_the_last_event_of_an_hour_is_that_others_are_dropped(tmp_path: Path) -> None:
    api = Api()
    async with writing(tmp_path, api) as written:
        for number in range(MOST + 5):
            await written.write(NodeEvent("A", "B", str(number)), START + number)
        assert [made["note"] for made in api.made[:-1]] == [str(number) for number in range(MOST - 1)]
        assert (len(api.made), api.made[-1]["reason"]) == (MOST, "NoticesDropped")
        # An hour after the first one there is room for one, which is the last one again.
        await written.write(DRAIN, START + HOUR)
        assert len(api.made) == MOST
        await written.write(DRAIN, START + HOUR + 0.5)
        assert (len(api.made), api.made[-1]["reason"]) == (MOST + 1, "NoticesDropped")
        await written.write(DRAIN, START + HOUR + 2.5)
        assert len(api.made) == MOST + 2
        await written.write(DRAIN, START + 2 * HOUR + MOST)
    assert api.made[-1]["reason"] == "Draining"


async def test_the_series_that_began_first_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "KNOWN", 2)
    api = Api()
    async with writing(tmp_path, api) as written:
        for event in (DRAIN, BLOCKED, DRAIN, BLOCKED):
            await written.write(event, START)
        assert len(api.made) == 2
        # A new Event of the first one is the newest series.
        await written.write(DRAIN, START + FORGET_AFTER + 1)
        await written.write(BLOCKED, START + FORGET_AFTER)
        for event in (NodeEvent("A", "B", "c"), DRAIN, BLOCKED):
            await written.write(event, START + FORGET_AFTER + 2)
    assert [made["reason"] for made in api.made[2:]] == ["Draining", "A", "DrainBlocked"]
