# SPDX-License-Identifier: Apache-2.0
"""The Node is watched: changes at once, few requests at rest, and a bounded number after each end of a watch.

In virtual time, with an API server in memory that counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs

import pytest

from nodeagent.core.coordination.annotations import CURRENT, DESIRED, RETRY, STATE, TOPOLOGY, ControllerRequest
from nodeagent.features.cluster import node_watch
from nodeagent.features.cluster.handshake import CONFIGS, Handshake
from nodeagent.kube.errors import NoAnswer, Unauthorized, from_answer
from nodeagent.report.status import Status
from nodeagent.update.states import Phase
from tests.features.cluster.test_handshake import Memory, meta
from tests.kube.memory_api import NODES, MemoryApi, MemoryClient, event

pytestmark = pytest.mark.looptime

A, B = "rendered-a", "rendered-b"
MINUTES = 60.0
Part = tuple[float, bytes | Exception]


class LoopClock:
    def now(self) -> str:
        return "2026-01-01T00:00:00.000Z"

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


@dataclass
class Api(MemoryApi):
    """``bad`` are the parts of the next watches, each after some seconds; the last one is repeated ``times``. Then the
    watches are as they should be."""

    bad: list[list[Part]] = field(default_factory=list)
    times: int = 1
    # The time and the position of each watch.
    watches: list[tuple[float, str]] = field(default_factory=list)

    async def watch(self, target: str) -> AsyncGenerator[bytes]:
        query = parse_qs(target.partition("?")[2])
        self.watches.append((asyncio.get_running_loop().time(), query["resourceVersion"][0]))
        if not self.bad:
            async for line in super().watch(target):
                yield line
            return
        self.asked["WATCH nodes"] += 1
        parts = self.bad[0]
        if len(self.bad) > 1 or self.times <= 1:
            self.bad.pop(0)
        else:
            self.times -= 1
        for seconds, part in parts:
            await asyncio.sleep(seconds)
            if isinstance(part, Exception):
                raise part
            yield part

    def note(self, **changes: str | None) -> None:
        status, _ = self.answer("PATCH", f"{NODES}/n", {"metadata": {"annotations": changes}})
        assert status == 200
        self.asked["PATCH nodes"] -= 1

    def heartbeat(self, number: int) -> None:
        """What a kubelet writes."""
        self.answer("PATCH", f"{NODES}/n", {"status": {"heartbeat": number}})
        self.asked["PATCH nodes"] -= 1

    def config(self, name: str) -> None:
        path = f"{CONFIGS[0]}/{name}"
        self.objects[path] = {"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "spec": {}}

    @property
    def notes(self) -> dict[str, str]:
        found: dict[str, str] = self.objects[f"{NODES}/n"]["metadata"]["annotations"]
        return found

    @property
    def position(self) -> str:
        version: str = self.objects[f"{NODES}/n"]["metadata"]["resourceVersion"]
        return version


@pytest.fixture(autouse=True)
def in_virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Virtual time does not wait for a thread."""

    async def inline(function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", inline)


@dataclass
class Side:
    shake: Handshake
    client: MemoryClient
    changes: list[bool]
    faults: list[str]

    async def desired(self) -> str:
        source = await self.shake.desired()
        return source.name if source else ""


# What a machine-config-controller writes to each Node.
CONTROLLED = {TOPOLOGY: "HighlyAvailable"}


def node(api: MemoryApi, **notes: str) -> None:
    """Add a Node that a controller manages, unless ``notes`` replaces its annotation."""
    api.add(NODES, "n", metadata={"annotations": {**CONTROLLED, **notes}}, spec={}, status={})


@asynccontextmanager
async def agent(api: MemoryApi, client: MemoryClient | None = None) -> AsyncIterator[Side]:
    changes: list[bool] = []
    faults: list[str] = []
    client = client or MemoryClient(api, LoopClock(), asyncio.get_running_loop().time)
    shake = Handshake(
        client,
        "n",
        Memory(),
        changed=changes.append,
        on_error=lambda fault: faults.append(fault.reason if fault else ""),
    )
    running = asyncio.create_task(shake.run())
    try:
        await asyncio.sleep(0.2)
        yield Side(shake, client, changes, faults)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until(true: Callable[[], object], seconds: float = 1.0) -> None:
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.01)


def refused(status: int) -> Exception:
    return from_answer(status, {"message": "no"}, "WATCH")


def expired() -> bytes:
    return event("ERROR", {"kind": "Status", "code": 410, "message": "too old resource version"})


@pytest.mark.finding("cluster: connections at rest", "The Node of an agent at rest is watched, and not read again.")
async def test_ten_minutes_at_rest() -> None:
    api = Api()
    node(api, **{DESIRED: A, CURRENT: A, STATE: "Done"})
    api.config(A)
    async with agent(api) as side:
        side.shake.report(Status(Phase.IDLE, current=A, desired=A))
        for number in range(60):
            api.heartbeat(number)
            await asyncio.sleep(10.0)
        assert side.changes == [False]
    assert api.asked["GET nodes"] == 1
    assert 2 <= api.asked["WATCH nodes"] <= 3
    assert api.asked["PATCH nodes"] == 0
    assert side.client.requests <= 2 + 3, "with the fetch of the config"


@pytest.mark.finding("cluster: connections at rest", "A desired config is seen at once.")
async def test_changes_are_followed_at_once() -> None:
    api = Api()
    node(api, **{DESIRED: A, CURRENT: A, STATE: "Done"})
    api.config(A)
    api.config(B)
    async with agent(api) as side:
        side.shake.report(Status(Phase.IDLE, current=A, desired=A))
        await asyncio.sleep(8 * MINUTES)
        api.note(**{DESIRED: B})
        await until(lambda: len(side.changes) == 2)
        assert await side.desired() == B
        api.note(**{RETRY: B})
        await until(lambda: RETRY not in api.notes)
        assert side.changes == [False, False, True]
        # What another client changed is corrected.
        api.note(**{CURRENT: "mine"})
        await until(lambda: api.notes[CURRENT] == A)
    assert api.asked["GET nodes"] == 1


@pytest.mark.finding(
    "cluster: fetches at once", "Agents that get a config at once without a controller fetch it within half a minute."
)
async def test_a_config_that_all_nodes_get_at_once_is_fetched_within_half_a_minute() -> None:
    """Without a controller, which would choose a few of them."""
    times: set[float] = set()
    for _ in range(20):
        api = Api()
        api.add(NODES, "n", metadata={"annotations": {}}, spec={}, status={})
        api.config(A)
        async with agent(api) as side:
            api.note(**{DESIRED: A})
            began = asyncio.get_running_loop().time()
            await until(lambda side=side: side.changes, 31.0)  # type: ignore[misc]
            times.add(round(asyncio.get_running_loop().time() - began))
        assert api.asked["GET nodes"] == 1
    assert len(times) >= 8


async def test_after_an_outage_the_watch_begins_after_a_pause() -> None:
    """The agents of a fleet found the API server again at one moment."""

    class Away(MemoryClient):
        away = True

        async def _once(self, *request: Any) -> Any:
            if self.away:
                raise NoAnswer("away")
            return await super()._once(*request)

    api = Api()
    node(api)
    client = Away(api, LoopClock(), asyncio.get_running_loop().time)
    async with agent(api, client):
        await asyncio.sleep(30 * MINUTES)
        client.away = False
        await until(lambda: api.asked["GET nodes"] == 1, 400.0)
        assert api.watches == []
        began = asyncio.get_running_loop().time()
        await until(lambda: api.watches, 40.0)
        assert asyncio.get_running_loop().time() - began >= 5.9
        assert api.asked["GET nodes"] == 2


@pytest.mark.finding(
    "cluster: agents after an outage", "They read their Nodes again spread over an interval, however they found it."
)
async def test_a_fleet_spreads_after_half_an_hour_without_the_server() -> None:
    """All were at rest, and each began at another time."""

    class Away(MemoryClient):
        failed = 0

        async def _once(self, *request: Any) -> Any:
            if away:
                self.failed += 1
                raise NoAnswer("away")
            return await super()._once(*request)

        async def parts(self, url: str, accept: str, seconds: float) -> AsyncGenerator[bytes]:
            async for part in super().parts(url, accept, seconds):
                yield part
                if away:
                    raise NoAnswer("cut")

    away, agents = False, 60
    apis = [Api() for _ in range(agents)]
    clients = [Away(api, LoopClock(), asyncio.get_running_loop().time) for api in apis]
    async with AsyncExitStack() as stack:
        for api, client in zip(apis, clients, strict=True):
            node(api)
            await stack.enter_async_context(agent(api, client))
        await asyncio.sleep(5 * MINUTES)
        away = True
        # What ends the watches.
        for api in apis:
            api.heartbeat(1)
        await asyncio.sleep(30 * MINUTES)
        # A read is three attempts, and the pauses grow from 5 to 300 seconds.
        assert all(3 <= client.failed <= 3 * (30 * MINUTES / 300 + 7) for client in clients)
        away, returned = False, asyncio.get_running_loop().time()
        watched = [len(api.watches) for api in apis]
        # Two of the intervals between two attempts, which have grown to five minutes.
        async with asyncio.timeout(2 * 300.0):
            while any(len(api.watches) == count for api, count in zip(apis, watched, strict=True)):
                await asyncio.sleep(1.0)
        begun = [api.watches[count][0] - returned for api, count in zip(apis, watched, strict=True)]
    busiest = max(sum(at <= each < at + 10.0 for each in begun) for at in begun)
    assert busiest <= agents / 4
    assert max(begun) <= 1.2 * 300 + 1.2 * 30 + 5


async def test_a_watch_that_ends_in_time_continues_at_its_position() -> None:
    api = Api()
    node(api)
    async with agent(api):
        await asyncio.sleep(25 * MINUTES)
    times, positions = zip(*api.watches, strict=True)
    assert api.asked["GET nodes"] == 1
    assert all(300 <= later - earlier <= 600 for earlier, later in pairwise(times))
    assert sorted(set(positions), key=int) == list(positions), "each one begins after the last bookmark"


@pytest.mark.parametrize("status", [400, 403, 404, 405, 406])
async def test_a_refused_watch_leads_to_polling_and_is_requested_again_later(status: int) -> None:
    api = Api(bad=[[(0.0, refused(status))]], times=3)
    node(api)
    async with agent(api) as side:
        await asyncio.sleep(50 * MINUTES)
        assert side.faults == [], "polling is no fault"
        reads = api.asked["GET nodes"]
        await asyncio.sleep(5 * MINUTES)
        assert api.asked["GET nodes"] == reads, "it is watched"
    pauses = [later - earlier for (earlier, _), (later, _) in pairwise(api.watches)]
    assert [wanted <= pause <= wanted + 40 for wanted, pause in zip((300, 600, 1200), pauses, strict=False)] == [
        True
    ] * 3
    assert 2100 / 36 <= reads <= 2100 / 30 + 4


async def test_a_position_that_is_too_old_begins_with_the_cache() -> None:
    """An API server keeps the history of a minute or more; the Node may have been written before."""
    answers: tuple[Part, ...] = ((0.0, refused(410)), (0.0, expired()))
    for answer in answers:
        api = Api(bad=[[answer]])
        node(api)
        async with agent(api):
            await asyncio.sleep(4 * MINUTES)
        assert [position for _, position in api.watches] == ["1", "0"]
        assert api.asked["GET nodes"] == 2


# Of a cache that is behind.
OLDER = {**meta("n"), "resourceVersion": "0"}


@pytest.mark.parametrize(
    "bad",
    {
        "an answer that ends at once": [],
        "a connection that is cut": [(0.1, NoAnswer("cut"))],
        "always too old": [(0.0, expired())],
        "too old after an event": [(0.0, event("ADDED", {"metadata": OLDER})), (0.0, expired())],
        "a login page": [(0.0, b"<html>\n")],
        "a server that is busy": [(0.0, refused(429))],
        "a server without etcd": [(0.0, refused(500))],
        "credentials that do not suffice": [(0.0, Unauthorized("no"))],
        "a proxy with a limit": [(30.0, b"")],
        "events of another Node": [(0.0, event("MODIFIED", {"metadata": meta("m")}))],
    }.items(),
    ids=lambda each: each[0],
)  # fmt: skip
async def test_a_watch_that_does_not_last_costs_no_more_than_polling(bad: tuple[str, list[Part]]) -> None:
    api = Api(bad=[bad[1]], times=1000)
    node(api, **{DESIRED: A})
    api.config(A)
    async with agent(api) as side:
        await asyncio.sleep(10 * MINUTES)
        first = side.client.requests
        await asyncio.sleep(50 * MINUTES)
        assert first <= 10 * 2 + 20
        assert side.client.requests - first <= 50 * 2.1 + 12
        # It is seen without a watch.
        api.config(B)
        api.note(**{DESIRED: B})
        await until(lambda: len(side.changes) == 2, 40.0)
        assert await side.desired() == B


async def test_after_a_cut_the_agents_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server that is restarted ends the watches of all agents at one moment."""
    times: set[float] = set()
    for _ in range(20):
        api = Api(bad=[[(0.0, b""), (100.0, NoAnswer("cut"))]])
        node(api)
        began = asyncio.get_running_loop().time()
        async with agent(api):
            await asyncio.sleep(140.0)
        assert len(api.watches) == 2
        times.add(round(api.watches[1][0] - began, 1))
    assert all(106 <= each <= 136.1 for each in times)
    assert len(times) >= 10


async def test_a_connection_that_is_lost_without_a_sign_leads_to_a_read() -> None:
    class Lost(MemoryClient):
        async def parts(self, url: str, accept: str, seconds: float) -> AsyncGenerator[bytes]:
            if not api.watches:
                api.watches.append((0.0, ""))
                yield event("BOOKMARK", {"metadata": {"resourceVersion": "5"}})
                await asyncio.sleep(seconds)
            async for part in super().parts(url, accept, seconds):
                yield part

    api = Api()
    node(api)
    client = Lost(api, LoopClock(), asyncio.get_running_loop().time)
    async with agent(api, client) as side:
        api.note(**{DESIRED: A})
        api.config(A)
        await asyncio.sleep(140.0)
        assert side.changes == []
        await until(lambda: side.changes, 20.0)
        api.config(B)
        api.note(**{DESIRED: B})
        await until(lambda: len(side.changes) == 2)
    assert api.asked["GET nodes"] == 2


async def test_an_older_state_is_not_followed() -> None:
    """The cache of an API server may be behind, and events of earlier writes arrive after the answer to a later one."""

    def state(version: str, desired: str) -> bytes:
        about = {"name": "n", "uid": api.objects[f"{NODES}/n"]["metadata"]["uid"], "resourceVersion": version}
        return event("MODIFIED", {"metadata": {**about, "annotations": {**CONTROLLED, DESIRED: desired}}})

    api = Api()
    for name in (A, B):
        api.config(name)
    node(api, **{DESIRED: A})
    for _ in range(20):
        api.heartbeat(1)
    api.bad = [[(1.0, state("9", B)), (1.0, state("100", B)), (1.0, state("99", A)), (900.0, b"")]]
    async with agent(api) as side:
        await asyncio.sleep(1.5)
        assert await side.desired() == A
        await until(lambda: len(side.changes) == 2, 2.0)
        await asyncio.sleep(10.0)
        assert (await side.desired(), side.changes) == (B, [False, False])


async def test_a_change_between_the_read_and_the_watch_is_not_missed() -> None:
    """The answer to a write may be newer than the read, so the watch begins at the read."""
    api = Api()
    node(api, **{DESIRED: A, CURRENT: A, STATE: "Working"})
    api.config(A)
    api.config(B)

    go_on = asyncio.Event()

    class Slow(MemoryClient):
        async def _once(self, method: str, url: str, *rest: Any) -> Any:
            if A in url:
                await go_on.wait()
            return await super()._once(method, url, *rest)

    client = Slow(api, LoopClock(), asyncio.get_running_loop().time)
    async with agent(api, client) as side:
        # While the config is fetched, a controller changes its mind and the agent reports.
        api.note(**{DESIRED: B})
        side.shake.report(Status(Phase.IDLE, current=A, desired=A))
        side.shake._request = ControllerRequest(state="Working")
        await until(lambda: api.notes[STATE] == "Done")
        go_on.set()
        await until(lambda: len(side.changes) == 2)
        assert await side.desired() == B
    assert api.asked["GET nodes"] == 1


async def test_a_node_that_is_created_again_gets_the_annotations() -> None:
    api = Api()
    node(api, **{CURRENT: A, STATE: "Done"})
    async with agent(api) as side:
        side.shake.report(Status(Phase.IDLE, current=A))
        await asyncio.sleep(2 * MINUTES)
        meta = api.objects[f"{NODES}/n"]["metadata"]
        api.answer("DELETE", f"{NODES}/n", {"preconditions": {"uid": meta["uid"]}})
        await asyncio.sleep(10.0)
        node(api)
        await until(lambda: api.notes.get(CURRENT) == A)
    assert api.asked["GET nodes"] == 1


async def test_a_config_that_is_not_there_is_fetched_again_without_a_change_of_the_node() -> None:
    api = Api()
    node(api)
    async with agent(api) as side:
        await asyncio.sleep(1 * MINUTES)
        api.note(**{DESIRED: A})
        await asyncio.sleep(2 * MINUTES)
        assert reason_of(side) == "ConfigNotFound"
        api.config(A)
        await until(lambda: len(side.changes) == 2, 40.0)
        reads = api.asked["GET nodes"]
        await asyncio.sleep(5 * MINUTES)
        assert api.asked["GET nodes"] == reads, "it is watched again"


def reason_of(side: Side) -> str:
    fault = side.shake._fault
    return fault.reason if fault else ""


async def test_many_watches_that_last_do_not_count_as_brief() -> None:
    api = Api(bad=[[(node_watch.BRIEF + 1.0, NoAnswer("cut"))]], times=8)
    node(api)
    async with agent(api):
        await asyncio.sleep(20 * MINUTES)
    assert len(api.watches) >= 9
