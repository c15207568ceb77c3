# SPDX-License-Identifier: Apache-2.0
"""The annotation of the Node: a value is one request, which is answered once."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.errors import Refused, Unreachable
from nodeagent.features.reboot_on_request.decide import RequestSource
from nodeagent.features.reboot_on_request.node import ANSWER, MAX_VALUE, REQUEST, NodeRequests, is_value
from nodeagent.features.reboot_on_request.requests import KeptRequests
from tests.features.reboot_on_request.test_requests import ONE, TWO, World


@dataclass
class Api:
    """The annotations of one Node."""

    notes: dict[str, Any] = field(default_factory=dict)
    # What etcd has, if the cache of this API server is older.
    newer: dict[str, Any] | None = None
    away: bool = False
    read_only: bool = False
    patches: int = 0

    async def get(self, path: str, **query: str) -> Any:
        assert path == "/api/v1/nodes/worker"
        if self.away:
            raise Unreachable("the API server is away")
        notes = self.notes if query.get("resourceVersion") == "0" or self.newer is None else self.newer
        return {"metadata": {"annotations": dict(notes)}}

    async def patch(self, _path: str, body: Any) -> Any:
        if self.read_only:
            raise Refused("nodes is forbidden")
        self.patches += 1
        self.notes |= body["metadata"]["annotations"]
        return {}


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "run").mkdir()
    return World(tmp_path)


def of(api: Api, requests: KeptRequests, world: World, *, rests: bool = True) -> NodeRequests:
    return NodeRequests(api, "worker", requests, world.clock, lambda: rests, lambda: 0.5)


def answer(api: Api) -> dict[str, str]:
    found: dict[str, str] = json.loads(api.notes[ANSWER])
    return found


async def test_a_value_is_one_reboot_and_is_answered_when_it_is_verified(world: World) -> None:
    api = Api({REQUEST: "2026-11-28"})
    requests = await world.start()
    for _ in range(3):
        await of(api, requests, world).look()
    pending = requests.pending()
    assert pending is not None
    assert pending.words == "reboot requested by the Node: 2026-11-28"
    assert (len(world.changes), ANSWER in api.notes) == (1, False)
    requests = await world.start(TWO)
    await of(api, requests, world, rests=False).look()
    assert ANSWER not in api.notes
    for _ in range(3):
        await of(api, requests, world).look()
    assert (answer(api)["request"], answer(api)["result"], api.patches) == ("2026-11-28", "rebooted", 1)
    assert requests.pending() is None
    # The store is lost.
    world.notes.texts.clear()
    requests = await world.start("kernel-3")
    await of(api, requests, world).look()
    assert requests.pending() is None
    api.notes[REQUEST] = "2026-12-24"
    await of(api, requests, world).look()
    assert requests.pending() is not None


async def test_a_cancelled_request_is_answered_and_not_taken_again(world: World) -> None:
    api = Api({REQUEST: "a"})
    requests = await world.start()
    await of(api, requests, world).look()
    pending = requests.pending()
    assert pending is not None
    await requests.drop(pending.id, "cancelled by root")
    api.read_only = True
    await of(api, requests, world).look()
    api.read_only = False
    for _ in range(2):
        await of(api, requests, world).look()
    assert (answer(api)["result"], requests.pending(), api.patches) == ("ended without a reboot", None, 1)


async def test_a_request_whose_annotation_was_removed_is_taken_back(world: World) -> None:
    api = Api({REQUEST: "a"})
    requests = await world.start()
    await of(api, requests, world).look()
    api.notes.clear()
    # Its reboot has begun.
    await of(api, requests, world, rests=False).look()
    assert requests.pending() is not None
    # The cache of another API server does not have the annotation yet.
    api.newer = {REQUEST: "a"}
    await of(api, requests, world).look()
    assert requests.pending() is not None
    api.newer = None
    await of(api, requests, world).look()
    assert (requests.pending(), api.patches) == (None, 0)
    # The same value is answered, and no new request.
    api.notes[REQUEST] = "a"
    await of(api, requests, world).look()
    assert (answer(api)["result"], requests.pending()) == ("ended without a reboot", None)


async def test_only_a_request_of_the_node_is_taken_back_there(world: World) -> None:
    requests = await world.start()
    await requests.request(RequestSource.OPERATOR, "jane")
    await of(Api(), requests, world).look()
    assert requests.pending() is not None


async def test_without_an_answer_of_the_api_server_nothing_changes(world: World) -> None:
    api = Api({REQUEST: "a"}, away=True)
    requests = await world.start(ONE)
    await of(api, requests, world).look()
    assert requests.pending() is None


@given(st.text() | st.integers() | st.none())
def test_a_value_is_a_line_of_limited_length(value: object) -> None:
    assert is_value(value) is (isinstance(value, str) and 0 < len(value) <= MAX_VALUE and value.isprintable())


@pytest.mark.parametrize("notes", [{}, {REQUEST: ""}, {REQUEST: "a\nb"}, {REQUEST: 3}, {REQUEST: "x" * 101}])
async def test_what_is_no_request(world: World, notes: dict[str, Any]) -> None:
    requests = await world.start()
    await of(Api(notes), requests, world).look()
    assert requests.pending() is None


@pytest.mark.parametrize("text", ["", "x", "[]", '{"request": 3}', 7])
async def test_another_text_is_no_answer(world: World, text: object) -> None:
    requests = await world.start()
    await of(Api({REQUEST: "a", ANSWER: text}), requests, world).look()
    assert requests.pending() is not None
