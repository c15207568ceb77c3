# SPDX-License-Identifier: Apache-2.0
"""A watch of one object over sockets: what arrives in any parts, and each way in which it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from nodeagent.kube import watch
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from nodeagent.kube.errors import Forbidden, Gone, KubeFault, NoAnswer, Rejected, ServerFault, Throttled
from nodeagent.kube.watch import Silent, WatchedChange, changes
from tests.kube.memory_api import event
from tests.kube.server import CUT, Answer, Server, Stream, serving
from tests.kube.test_client import Clock, kubeconfig

NODES = "/api/v1/nodes"


def node(version: str, name: str = "n", **more: Any) -> dict[str, Any]:
    return {"kind": "Node", "metadata": {"name": name, "uid": "u", "resourceVersion": version, **more}}


def bookmark(version: str) -> bytes:
    return event("BOOKMARK", {"kind": "Node", "metadata": {"resourceVersion": version, "creationTimestamp": None}})


def refusal(**more: Any) -> bytes:
    return event("ERROR", {"kind": "Status", "status": "Failure", "message": "no", **more})


@asynccontextmanager
async def against(directory: Path, *answers: Any) -> AsyncIterator[tuple[KubeClient, Server]]:
    async with serving(*answers) as server:
        path = kubeconfig(directory, f"http://127.0.0.1:{server.port}", token="t")
        async with KubeClient(ClusterAccess(str(path), private=str(directory)), Clock(), timeout=30.0) as client:
            yield client, server


async def seen(client: KubeClient, silent: float = 20.0) -> tuple[list[WatchedChange], KubeFault | None]:
    """Return the changes until the end, and the fault that ended the watch."""
    arrived: list[WatchedChange] = []
    async with aclosing(changes(client, NODES, "n", since="5", seconds=300, silent=silent)) as watched:
        try:
            async for change in watched:
                arrived.append(change)
        except KubeFault as fault:
            return arrived, fault
    return arrived, None


@pytest.mark.parametrize("size", [1, 7, 100, 100_000])
async def test_events_arrive_in_any_parts(tmp_path: Path, size: int) -> None:
    lines = (
        event("ADDED", node("6", annotations={"key": "ä\n"}))
        + b"\n"
        + bookmark("9")
        + event("MODIFIED", node("10", annotations={"long": "x" * 500}))
        + event("DELETED", node("11"))
        # Only a part of it has arrived at the end.
        + event("MODIFIED", node("12"))[:-1]
    )
    parts = [(0.0, lines[at : at + size]) for at in range(0, len(lines), size)]
    async with against(tmp_path, Stream(parts)) as (client, server):
        arrived, fault = await seen(client)
    assert fault is None
    assert [(change.position, change.item is not None, change.deleted) for change in arrived] == [
        ("6", True, False),
        ("9", False, False),
        ("10", True, False),
        ("11", True, True),
    ]
    assert arrived[0].item is not None
    assert (arrived[0].item["metadata"].get("annotations") or {})["key"] == "ä\n"
    request = server.requests[0]
    assert parse_qs(request.target.partition("?")[2]) == {
        "watch": ["true"],
        "fieldSelector": ["metadata.name=n"],
        "resourceVersion": ["5"],
        "allowWatchBookmarks": ["true"],
        "timeoutSeconds": ["300"],
    }
    first, other = request.headers["accept"].split(",")
    assert "as=PartialObjectMetadata;" in first
    assert other == "application/json", "a server that cannot reduce objects sends all of them"


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, Rejected), (403, Forbidden), (405, Rejected), (406, Rejected), (410, Gone), (429, Throttled)],
)
async def test_a_refused_watch_is_requested_once(tmp_path: Path, status: int, kind: type[KubeFault]) -> None:
    async with against(tmp_path, Answer(status, {"message": "no"})) as (client, server):
        arrived, fault = await seen(client)
    assert (arrived, type(fault), len(server.requests)) == ([], kind, 1)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (refusal(code=410, reason="Expired"), Gone),
        (refusal(code=500), ServerFault),
        (refusal(), ServerFault),
        (refusal(code="410"), ServerFault),
        (b"<html>please log in</html>\n", ServerFault),
        (b'{"kind": "NodeList", "items": []}\n', ServerFault),
        (b"[]\n", ServerFault),
        (event("MODIFIED", None), ServerFault),
        (event("MODIFIED", {"metadata": {}}), ServerFault),
        (event("BOOKMARK", {"metadata": {"resourceVersion": ""}}), ServerFault),
        (event("RENAMED", node("7")), ServerFault),
        (event("MODIFIED", node("7", "another")), ServerFault),
    ],
)
async def test_what_is_no_change_ends_the_watch(tmp_path: Path, line: bytes, kind: type[KubeFault]) -> None:
    async with against(tmp_path, Stream([(0.0, event("MODIFIED", node("6"))), (0.0, line)], hang=True)) as (client, _):
        arrived, fault = await seen(client)
        assert client._connected is not None
        assert not client._connected[0].pool_manager.connector._acquired, "its connection is closed"
    assert [change.position for change in arrived] == ["6"]
    assert type(fault) is kind


async def test_a_cut_in_the_middle_keeps_what_arrived(tmp_path: Path) -> None:
    parts = [(0.0, event("MODIFIED", node("6"))), (0.0, event("MODIFIED", node("7"))[:20])]
    async with against(tmp_path, Stream(parts, cut=True)) as (client, _):
        arrived, fault = await seen(client)
    assert [change.position for change in arrived] == ["6"]
    assert type(fault) is NoAnswer


async def test_a_cut_before_the_answer(tmp_path: Path) -> None:
    async with against(tmp_path, CUT) as (client, _):
        assert type((await seen(client))[1]) is NoAnswer


async def test_a_silent_connection_is_noticed(tmp_path: Path) -> None:
    async with against(tmp_path, Stream([(0.0, bookmark("6"))], hang=True)) as (client, _):
        assert type((await seen(client, silent=0.2))[1]) is Silent


async def test_an_event_without_end_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MAX_EVENT", 1000)
    async with against(tmp_path, Stream([(0.0, b"x" * 300)] * 5, hang=True)) as (client, _):
        assert type((await seen(client))[1]) is ServerFault


async def test_other_requests_go_on_beside_a_watch(tmp_path: Path) -> None:
    async with against(tmp_path, Answer()) as (client, server):
        server.answer = lambda request: (
            Stream([(0.0, bookmark("6"))], hang=True) if "watch" in request.target else Answer(body=node("6"))
        )
        async with aclosing(changes(client, NODES, "n", since="5", seconds=300)) as watched:
            assert (await anext(watched)).position == "6"
            waiting = asyncio.create_task(anext(watched, None))
            for _ in range(3):
                assert (await client.get(f"{NODES}/n"))["metadata"]["name"] == "n"
            assert not waiting.done()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
