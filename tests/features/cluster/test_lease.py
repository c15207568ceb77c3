# SPDX-License-Identifier: Apache-2.0
"""Writes that are done and never answered, at each place, which no real API server does on request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nodeagent.core.coordination.kube_time import ServerClock
from nodeagent.core.coordination.lease import HostIdentity
from nodeagent.errors import Refused, Retryable, Unreachable
from nodeagent.features.cluster import lease as kube_lease
from nodeagent.features.cluster.decide.lease import LeaseToken
from nodeagent.features.cluster.lease import UNTIL_RELEASED, KubeLease
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from tests.kube.server import CUT, Answer, Request, serving
from tests.kube.test_client import kubeconfig

LEASE = "/apis/coordination.k8s.io/v1/namespaces/medik8s-leases/leases"
NODE = {"metadata": {"name": "n1", "uid": "node-uid", "resourceVersion": "1"}}


@dataclass
class Clock:
    ahead: float = 0.0

    def now(self) -> str:
        return ""

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


@dataclass
class Memory:
    token: LeaseToken | None = None

    async def load(self) -> LeaseToken | None:
        return self.token

    async def save(self, token: LeaseToken | None) -> None:
        self.token = token


@dataclass
class Leases:
    """One lease as an API server keeps it. ``after`` is called when a write was done, and may change the
    answer; ``before`` says whether the connection goes before anything is done."""

    lease: dict[str, Any] | None = None
    writes: int = 0
    after: Callable[[Request, Answer], Any] = lambda _, answer: answer
    before: Callable[[Request], Any] = lambda _: None
    log: list[str] = field(default_factory=list)
    hides_time: bool = False

    def answer(self, request: Request) -> Any:
        answer = self._answer(request)
        if self.hides_time and isinstance(answer, Answer):
            answer.headers["Date"] = ""
        return answer

    def _answer(self, request: Request) -> Any:
        if request.target.startswith("/api/v1/nodes/"):
            return Answer(body=NODE)
        if self.before(request):
            return CUT
        self.log.append(request.method)
        match request.method:
            case "GET":
                return Answer(body=self.lease) if self.lease else Answer(404, {"message": "not found"})
            case "POST" if self.lease:
                return Answer(409, {"reason": "AlreadyExists", "message": "exists"})
            case "POST":
                self.lease = request.body
                self.lease["metadata"]["uid"] = f"uid-{self.writes}"
            case "PATCH" if self.lease is None:
                return Answer(404, {"message": "not found"})
            case "PATCH":
                assert self.lease is not None
                if request.body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
                    return Answer(409, {"reason": "Conflict", "message": "modified"})
                for part in ("metadata", "spec"):
                    self.lease[part].update(request.body.get(part, {}))
            case "DELETE":
                assert self.lease is not None
                wanted = request.body["preconditions"]
                if wanted["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
                    return Answer(409, {"reason": "Conflict", "message": "modified"})
                self.lease = None
        self.touch()
        return self.after(request, Answer(body=self.lease or {"kind": "Status"}))

    def touch(self) -> None:
        self.writes += 1
        if self.lease is not None:
            self.lease["metadata"]["resourceVersion"] = str(self.writes)


@dataclass
class Scene:
    leases: Leases
    memory: Memory
    lease: KubeLease
    client: KubeClient
    clock: Clock


@asynccontextmanager
async def scene(directory: Path) -> AsyncIterator[Scene]:
    leases, memory, clock = Leases(), Memory(), Clock()
    async with serving(None) as server:
        server.answer = leases.answer
        path = kubeconfig(directory, f"http://127.0.0.1:{server.port}", token="t")
        async with KubeClient(ClusterAccess(str(path), private=str(directory)), clock, timeout=10.0) as client:
            lease = KubeLease(client, HostIdentity("n1", "host-a"), memory, clock)
            yield Scene(leases, memory, lease, client, clock)


def lose(method: str) -> Callable[[Request, Answer], Any]:
    """The answer to the first write with this method is lost."""
    left = [method]

    def after(request: Request, answer: Answer) -> Any:
        if request.method in left:
            left.clear()
            return CUT
        return answer

    return after


async def test_a_lease_created_without_an_answer_is_held(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        s.leases.after = lose("POST")
        await s.lease.acquire("nodeagent", "op", "why")
        assert s.leases.log == ["GET", "POST", "GET"]
        await s.lease.check("op", need=300)
        assert s.leases.log.count("PATCH") == 0, "its time counts from before the write"


async def test_a_renewal_without_an_answer_counts_if_it_was_done(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.lease.acquire("nodeagent", "op", "why")
        s.leases.after = lose("PATCH")
        await s.lease.before_reboot("op", 1800)
        await s.lease.check("op", need=1700)
        assert s.leases.log.count("PATCH") == 1


async def test_a_write_that_was_not_done_does_not_count(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        s.leases.before = lambda request: request.method == "POST"
        with pytest.raises((Unreachable, Retryable)):
            await s.lease.acquire("nodeagent", "op", "why")
        assert s.memory.token is None


async def test_a_write_that_was_done_late_is_released(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.lease.acquire("nodeagent", "op", "why")
        s.memory.token = None  # as if we had given up before it was there
        await s.lease.release("another")
        assert s.leases.lease is not None
        await s.lease.release("op")
        assert s.leases.lease is None


async def test_a_lease_of_another_holder_is_not_taken_and_an_empty_one_is(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        spec = {"holderIdentity": "other", "leaseDurationSeconds": 600, "renewTime": "2026-11-21T09:00:00.000000Z"}
        s.leases.lease = {"metadata": {"name": "node-n1", "uid": "theirs", "resourceVersion": "0"}, "spec": spec}
        with pytest.raises(Refused, match="other holds the node lease") as caught:
            await s.lease.acquire("nodeagent", "op", "why")
        assert (caught.value.reason, s.memory.token, s.leases.log) == ("LeaseHeld", None, ["GET"])
        spec["holderIdentity"] = ""
        await s.lease.acquire("nodeagent", "op", "why")
        assert s.leases.log[1:] == ["GET", "PATCH"]
        with pytest.raises(Refused, match="not held for this operation"):
            await s.lease.check("another")


async def test_a_release_for_another_operation_changes_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.lease.acquire("nodeagent", "op", "why")
        await s.lease.release("another")
        assert s.leases.lease is not None
        await s.lease.check("op")


async def test_an_operation_that_lost_the_lease_does_not_get_it_again_after_its_release(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.lease.acquire("nodeagent", "op", "why")
        s.leases.lease = None
        with pytest.raises(Refused):
            await s.lease.check("op")
        await s.lease.release("op")
        with pytest.raises(Refused) as caught:
            await s.lease.acquire("nodeagent", "op", "why")
        assert caught.value.reason == "LeaseLost"
        await s.lease.acquire("nodeagent", "next", "why")


async def test_a_release_that_was_done_and_not_answered(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.lease.acquire("nodeagent", "op", "why")
        s.leases.after = lose("DELETE")
        with pytest.raises(Unreachable):
            await s.lease.release("op")
        await s.lease.release("op")
        assert s.memory.token is None


async def test_a_release_meets_a_change(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.lease.acquire("nodeagent", "op", "why")
        touched: list[str] = []

        def before(request: Request) -> None:
            if request.method == "DELETE" and not touched:
                touched.append(request.method)
                s.leases.touch()

        s.leases.before = before
        await s.lease.release("op")
        assert s.leases.lease is None
        assert s.leases.log.count("DELETE") == 2


async def test_a_lease_that_changes_all_the_time(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.lease.acquire("nodeagent", "op", "why")
        s.leases.before = lambda request: s.leases.touch() if request.method != "GET" else None
        for attempt in (s.lease.acquire("nodeagent", "op", "why"), s.lease.release("op")):
            with pytest.raises(Retryable) as caught:
                await attempt
            assert caught.value.reason == "LeaseContended"
        assert s.memory.token is not None


async def test_a_lease_that_is_deleted_before_its_renewal(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.lease.acquire("nodeagent", "op", "why")

        def before(request: Request) -> None:
            if request.method == "PATCH":
                s.leases.lease = None

        s.leases.before = before
        with pytest.raises(Refused) as caught:
            await s.lease.check("op", need=3000)
        assert caught.value.reason == "LeaseLost"


async def test_a_long_suspend_is_noticed(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.lease.acquire("nodeagent", "op", "why")
        s.clock.ahead = 10_000.0
        before = s.leases.log.count("PATCH")
        await s.lease.check("op")
        assert s.leases.log.count("PATCH") == before + 1, (
            "no other holder took it, and it is renewed before anything is done"
        )


@pytest.mark.finding(
    "decisions: renewal of a lease", "The background renewal does not shorten the lease that covers a boot."
)
async def test_the_renewal_in_the_background_keeps_the_cover_of_a_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(tmp_path) as s:
        await s.lease.acquire("nodeagent", "op", "why")
        monkeypatch.setattr(kube_lease, "RENEWALS", 1e5)
        async with asyncio.timeout(20):
            keeping = asyncio.create_task(s.lease.keep())
            while "PATCH" not in s.leases.log:
                await asyncio.sleep(0.01)
            await s.lease.before_reboot("op", 3600)
            patches = s.leases.log.count("PATCH")
            await asyncio.sleep(0.2)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        assert s.leases.log.count("PATCH") == patches
        assert s.leases.lease is not None
        assert s.leases.lease["spec"]["leaseDurationSeconds"] >= 3600


@pytest.mark.finding("decisions: begin of a lease", "A lease counts from before the request, not from the answer.")
async def test_a_slow_answer_shortens_what_is_left(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.lease.acquire("nodeagent", "op", "why")
        await s.lease.before_reboot("op", 1000)
        patches = s.leases.log.count("PATCH")
        await s.lease.check("op", need=950)
        assert s.leases.log.count("PATCH") == patches

        def late(_request: Request, answer: Answer) -> Answer:
            s.clock.ahead += 100
            return answer

        s.leases.after = late
        await s.lease.before_reboot("op", 1000)
        s.leases.after = lambda _request, answer: answer
        await s.lease.check("op", need=950)
        assert s.leases.log.count("PATCH") == patches + 2, "it is renewed, as 100 seconds of it had passed"


async def test_a_second_read_within_seconds_is_cached(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.lease.acquire("nodeagent", "op", "why")
        asked = s.client.requests
        holder = await s.lease.holder()
        assert holder is not None
        assert holder.operation == "op"
        assert s.client.requests == asked
        await s.lease.release("op")
        assert await s.lease.holder() is None
        s.clock.ahead = 3.0
        assert await s.lease.holder() is None
        assert s.client.requests == asked + 3, "read and deleted; read again"


async def test_a_lease_until_it_is_released_is_written_with_an_end_and_shown_without(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.lease.acquire("nodeagent", "op", "why")
        held = await s.lease.holder()
        assert held is not None
        assert held.expires
        await s.lease.extend("op", None)
        assert s.leases.lease is not None
        assert s.leases.lease["spec"]["leaseDurationSeconds"] >= UNTIL_RELEASED
        held = await s.lease.holder()
        assert held is not None
        assert (held.operation, held.expires) == ("op", "")


async def test_a_server_that_hides_its_time(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.lease.acquire("nodeagent", "op", "why")
        s.client.server_clock = ServerClock()
        s.leases.hides_time = True
        for attempt in (s.lease.check("op", need=3000), s.lease.acquire("nodeagent", "op", "why")):
            with pytest.raises(Retryable) as caught:
                await attempt
            assert caught.value.reason == "KubeNoDate"
