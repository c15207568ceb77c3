# SPDX-License-Identifier: Apache-2.0
"""The reader and the writer of the own Node, against a server that keeps one Node and some configs, without a watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.core.coordination.annotations import CURRENT, DESIRED, DRAIN, DRAINED, REASON, RETRY, STATE
from nodeagent.errors import AgentError, InvalidInput, Refused, Terminal, Unreconcilable
from nodeagent.features.cluster import controller_drain as mco_drain
from nodeagent.features.cluster import handshake
from nodeagent.features.cluster.controller_drain import ControllerDrain, EitherDrain
from nodeagent.features.cluster.handshake import Handshake
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from nodeagent.kube.errors import Forbidden
from nodeagent.reasons import Reason
from nodeagent.report.status import Status
from nodeagent.update.states import Phase
from tests.kube.server import CUT, Answer, Request, serving
from tests.kube.test_client import Clock, kubeconfig

A, B = "rendered-a", "rendered-b"
OFFICIAL, OURS = handshake.CONFIGS
PODS = "/api/v1/pods"


@dataclass
class Api:
    """Answers as an API server with one Node ``n``. ``away``: every connection is cut."""

    notes: dict[str, str] = field(default_factory=dict)
    cordoned: bool = False
    registered: bool = True
    away: bool = False
    configs: dict[str, Any] = field(default_factory=dict)  # by path; an Answer is given as it is
    version: int = 1
    asked: list[str] = field(default_factory=list)
    # The configs that the cache of the API server does not have yet, by path, and the queries for configs.
    behind: set[str] = field(default_factory=set)
    queries: list[str] = field(default_factory=list)
    patches: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, request: Request) -> Any:
        if self.away:
            return CUT
        path = request.target.partition("?")[0]
        if path == "/api/v1/nodes":
            return Answer(403, {"message": "cannot watch"})
        self.asked.append(f"{request.method} {path}")
        if path != "/api/v1/nodes/n":
            query = request.target.partition("?")[2]
            self.queries.append(query)
            if path in self.behind and query:
                return Answer(404, {"message": "not found"})
            found = self.configs.get(path, Answer(404, {"message": "not found"}))
            return found if isinstance(found, Answer) else Answer(body=found)
        if not self.registered:
            return Answer(404, {"message": "nodes n not found"})
        if request.method == "PATCH":
            changes = request.body["metadata"]["annotations"]
            self.patches.append(changes)
            self.note(**changes)
        about = {**meta("n"), "resourceVersion": str(self.version), "annotations": dict(self.notes)}
        return Answer(body={"metadata": about, "spec": {"unschedulable": self.cordoned}})

    def note(self, **changes: str | None) -> None:
        self.version += 1
        for key, value in changes.items():
            if value is None:
                self.notes.pop(key, None)
            else:
                self.notes[key] = value

    def config(self, name: str, group: str = OFFICIAL) -> None:
        kind = {"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig"}
        self.configs[f"{group}/{name}"] = {**kind, "metadata": meta(name), "spec": {"group": group}}


def meta(name: str) -> dict[str, str]:
    return {"name": name, "uid": name, "resourceVersion": "1"}


@dataclass
class Memory:
    source: ConfigSource | None = None
    broken: bool = False

    async def fetched(self) -> ConfigSource | None:
        return self.source

    async def keep_fetched(self, source: ConfigSource | None) -> None:
        if self.broken:
            raise Terminal("no space", reason=Reason.NO_SPACE)
        self.source = source


@dataclass
class Side:
    """The agent's side, running."""

    shake: Handshake
    client: KubeClient
    changes: list[bool]
    troubles: list[str]

    async def names(self) -> str:
        """The desired config, or the reason why there is none."""
        try:
            source = await self.shake.desired()
        except AgentError as error:
            return error.reason
        return source.name if source else ""


@asynccontextmanager
async def agent(
    directory: Path,
    api: Api,
    memory: Memory | None = None,
    requested: Callable[[ConfigSource], Awaitable[None]] | None = None,
) -> AsyncIterator[Side]:
    changes: list[bool] = []
    troubles: list[str] = []
    async with serving(Answer()) as server:
        server.answer = api
        path = kubeconfig(directory, f"http://127.0.0.1:{server.port}", token="t")
        async with KubeClient(ClusterAccess(str(path), private=str(directory)), Clock(), timeout=10.0) as client:
            shake = Handshake(
                client,
                "n",
                memory or Memory(),
                changed=changes.append,
                requested=requested,
                on_error=lambda fault: troubles.append(fault.reason if fault else ""),
                every=0.01,
            )
            running = asyncio.create_task(shake.run())
            try:
                yield Side(shake, client, changes, troubles)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while True:
            answer = true()
            if await answer if asyncio.iscoroutine(answer) else answer:
                return
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("READ", "WRITE"):
        monkeypatch.setattr(handshake, f"{name}_FIRST_PAUSE", 0.01)
        monkeypatch.setattr(handshake, f"{name}_LONGEST_PAUSE", 0.02)
    monkeypatch.setattr(mco_drain, "POLL", 0.01)


async def named(side: Side, name: str) -> None:
    async def is_so() -> bool:
        return await side.names() == name

    await until(is_so)


# The desired config.


async def test_a_config_is_fetched_once_for_each_name_and_kept(tmp_path: Path) -> None:
    api, memory = Api({DESIRED: A}), Memory()
    api.config(A)
    api.config(B)
    async with agent(tmp_path, api, memory) as side:
        await named(side, A)
        assert side.changes == [False]
        for number in range(3):
            seen = len(api.asked)
            api.note(**{f"heartbeat{number}": "x"})
            await until(lambda seen=seen: len(api.asked) > seen + 2)
        api.note(**{DESIRED: B})
        await named(side, B)
    assert side.changes == [False, False]
    assert [ask for ask in api.asked if "machineconfigs" in ask] == [f"GET {OFFICIAL}/{A}", f"GET {OFFICIAL}/{B}"]
    assert memory.source is not None
    assert memory.source.name == B


async def test_configs_are_in_the_own_group_without_the_operator(tmp_path: Path) -> None:
    api = Api({DESIRED: A})
    api.config(A, OURS)
    async with agent(tmp_path, api) as side:
        await named(side, A)
        source = await side.shake.desired()
    assert source is not None
    assert OURS.encode() in source.text


@pytest.mark.finding(
    "cluster: fetches at once",
    "A config is fetched from the cache of the API server, and in one request after the first.",
)
async def test_a_config_comes_from_the_cache(tmp_path: Path) -> None:
    api = Api({DESIRED: A})
    api.config(A, OURS)
    api.config(B, OURS)
    async with agent(tmp_path, api) as side:
        await named(side, A)
        first = [ask for ask in api.asked if "machineconfigs" in ask]
        api.note(**{DESIRED: B})
        await named(side, B)
    later = [ask for ask in api.asked if "machineconfigs" in ask][len(first) :]
    assert (first, later) == ([f"GET {OFFICIAL}/{A}", f"GET {OURS}/{A}"], [f"GET {OURS}/{B}"])
    assert set(api.queries) == {"resourceVersion=0"}


async def test_a_config_that_the_cache_does_not_have_yet(tmp_path: Path) -> None:
    api = Api({DESIRED: A})
    api.config(A)
    api.behind.add(f"{OFFICIAL}/{A}")
    async with agent(tmp_path, api) as side:
        await named(side, A)
    assert side.changes == [False]
    assert side.troubles == []


async def test_a_start_without_the_server(tmp_path: Path) -> None:
    kept = ConfigSource(A, "digest", b"text")
    async with agent(tmp_path, Api(away=True), Memory(kept)) as side:
        await named(side, A)
        await until(lambda: side.troubles)
        assert await side.shake.desired() == kept
    assert side.troubles == ["KubeUnreachable"], "a fault is reported once"
    assert side.changes == []


async def test_a_slow_read_of_the_store_does_not_bring_an_older_config_back(tmp_path: Path) -> None:
    """Both its task and a caller begin with the store; the caller's read ends when a newer config is there."""

    class Slow(Memory):
        def __init__(self) -> None:
            super().__init__(ConfigSource(B, "digest", b"text"))
            self.reads: list[asyncio.Event] = []

        async def fetched(self) -> ConfigSource | None:
            was = self.source
            self.reads.append(asyncio.Event())
            if len(self.reads) <= 2:
                await self.reads[-1].wait()
            return was

    api, memory = Api({DESIRED: A}), Slow()
    api.config(A)
    async with agent(tmp_path, api, memory) as side:
        await until(lambda: memory.reads)
        late = asyncio.create_task(side.shake.desired())
        await until(lambda: memory.reads[1:])
        memory.reads[0].set()
        await until(lambda: side.changes)
        memory.reads[1].set()
        await late
        assert await side.names() == A


async def test_the_desired_config_stays_while_the_next_cannot_be_fetched(tmp_path: Path) -> None:
    api = Api({DESIRED: A})
    api.config(A)
    async with agent(tmp_path, api) as side:
        await named(side, A)
        api.configs[f"{OFFICIAL}/{B}"] = Answer(500, {"message": "etcd"})
        api.note(**{DESIRED: B})
        await until(lambda: "KubeServerFault" in side.troubles)
        assert await side.names() == A
        api.config(B)
        await named(side, B)
        await until(lambda: side.troubles[-1] == "")


async def test_a_config_that_comes_later_than_its_name(tmp_path: Path) -> None:
    api = Api({DESIRED: A})
    async with agent(tmp_path, api) as side:
        await named(side, "ConfigNotFound")
        with pytest.raises(Refused, match=A):
            await side.shake.desired()
        api.config(A)
        await named(side, A)
    assert side.changes == [False, False]


@pytest.mark.parametrize(
    ("notes", "kind", "reason"),
    [
        ({DESIRED: "../secrets"}, InvalidInput, "ConfigNameInvalid"),
        ({DESIRED: A, "machineconfiguration.openshift.io/desiredImage": "i"}, Unreconcilable, "ImageLayered"),
        ({DESIRED: B}, Forbidden, "KubeForbidden"),
    ],
)
async def test_a_config_that_cannot_be_used_is_refused(
    tmp_path: Path, notes: dict[str, str], kind: type[AgentError], reason: str
) -> None:
    api = Api(notes)
    api.configs[f"{OFFICIAL}/{B}"] = Answer(403, {"message": "cannot get"})
    async with agent(tmp_path, api) as side:
        await named(side, reason)
        with pytest.raises(kind):
            await side.shake.desired()
    assert all("secrets" not in ask for ask in api.asked)


async def test_no_config_is_desired(tmp_path: Path) -> None:
    api, memory = Api({DESIRED: A}), Memory()
    api.config(A)
    async with agent(tmp_path, api, memory) as side:
        await named(side, A)
        api.note(**{DESIRED: None})
        await named(side, "")
    assert memory.source is None


async def test_a_deleted_node_keeps_the_desired_config(tmp_path: Path) -> None:
    api = Api({DESIRED: A})
    api.config(A)
    async with agent(tmp_path, api) as side:
        await named(side, A)
        api.registered = False
        seen = len(api.asked)
        await until(lambda: len(api.asked) > seen + 2)
        assert await side.names() == A


async def test_a_store_that_fails_ends_it(tmp_path: Path) -> None:
    api = Api({DESIRED: A})
    api.config(A)
    async with serving(Answer()) as server:
        server.answer = api
        path = kubeconfig(tmp_path, f"http://127.0.0.1:{server.port}", token="t")
        async with KubeClient(ClusterAccess(str(path), private=str(tmp_path)), Clock(), timeout=10.0) as client:
            shake = Handshake(client, "n", Memory(broken=True), changed=lambda _: None, every=0.01)
            with pytest.raises(Terminal, match="no space"):
                await asyncio.wait_for(shake.run(), 20)


async def test_an_operator_requests_a_config_again(tmp_path: Path) -> None:
    api = Api({DESIRED: A})
    api.config(A)
    async with agent(tmp_path, api) as side:
        await named(side, A)
        api.note(**{RETRY: B})
        seen = len(api.asked)
        await until(lambda: len(api.asked) > seen + 2)
        assert api.notes[RETRY] == B, "not the one that is desired"
        api.note(**{RETRY: A})
        await until(lambda: RETRY not in api.notes)
    assert side.changes == [False, True]


@pytest.mark.finding(
    "updates: requests are recorded first", "A request on the Node is recorded before its annotation is removed."
)
async def test_a_request_is_recorded_before_its_annotation_is_removed(tmp_path: Path) -> None:
    """A kill in between must not lose it."""
    api = Api({DESIRED: A})
    api.config(A)
    recorded, go_on = list[str](), asyncio.Event()

    async def record(source: ConfigSource) -> None:
        await go_on.wait()
        recorded.append(source.name)

    async with agent(tmp_path, api, requested=record) as side:
        await named(side, A)
        api.note(**{RETRY: A})
        seen = len(api.asked)
        side.shake.report(Status(Phase.DEGRADED, current=A, desired=A, reason="Reverted"))
        await until(lambda: api.notes.get(STATE) == "Degraded")
        await until(lambda: len(api.asked) > seen)
        assert (api.notes[RETRY], recorded, side.changes) == (A, [], [False])
        go_on.set()
        await until(lambda: RETRY not in api.notes)
    assert (recorded[0], side.changes[:2]) == (A, [False, True])


# What we tell.


async def test_the_states_of_an_update(tmp_path: Path) -> None:
    api = Api({DESIRED: B, CURRENT: A, STATE: "Done"})
    api.config(B)
    async with agent(tmp_path, api) as side:
        side.shake.report(Status(Phase.IDLE, current=A))
        await named(side, B)
        assert api.patches == []
        side.shake.report(Status(Phase.WRITING, current=A, desired=B))
        await until(lambda: api.notes[STATE] == "Working")
        side.shake.report(Status(Phase.VERIFYING, current=A, desired=B))
        assert api.notes[CURRENT] == A
        side.shake.report(Status(Phase.IDLE, current=B, desired=B))
        await until(lambda: api.notes[STATE] == "Done")
    assert api.patches == [{STATE: "Working"}, {STATE: "Done", CURRENT: B}]


async def test_nothing_is_lost_while_the_server_is_away(tmp_path: Path) -> None:
    api = Api({CURRENT: A, STATE: "Working"})
    async with agent(tmp_path, api) as side:
        await until(lambda: api.asked)
        api.away = True
        side.shake.report(Status(Phase.DEGRADED, "Reverted", "x\ny", current=A))
        await until(lambda: "KubeUnreachable" in side.troubles)
        side.shake.report(Status(Phase.IDLE, current=B))
        api.away = False
        await until(lambda: api.notes[STATE] == "Done")
        await until(lambda: side.troubles[-1] == "")
    assert api.notes == {CURRENT: B, STATE: "Done"}


@pytest.mark.parametrize("status", [409, 429, 500])
async def test_a_write_that_is_refused_is_tried_again(tmp_path: Path, status: int) -> None:
    api = Api({CURRENT: A, STATE: "Working"})
    failures = [Answer(status, {"message": "no"})] * 4
    async with agent(tmp_path, api) as side:
        await until(lambda: api.asked)
        served = api.__call__

        def failing(self: Api, request: Request) -> Any:
            return failures.pop() if request.method == "PATCH" and failures else served(request)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Api, "__call__", failing)
            side.shake.report(Status(Phase.IDLE, current=A))
            await until(lambda: api.notes[STATE] == "Done")
    assert not failures


async def test_an_annotation_changed_by_another_client_is_corrected(tmp_path: Path) -> None:
    api = Api({CURRENT: A, STATE: "Done"})
    async with agent(tmp_path, api) as side:
        side.shake.report(Status(Phase.IDLE, current=A))
        await until(lambda: api.asked)
        api.note(**{CURRENT: "mine", STATE: None})
        await until(lambda: api.notes == {CURRENT: A, STATE: "Done"})


async def test_a_recreated_node_gets_the_annotations(tmp_path: Path) -> None:
    api = Api({CURRENT: A, STATE: "Done"}, registered=False)
    async with agent(tmp_path, api) as side:
        side.shake.report(Status(Phase.DEGRADED, "Drifted", "x", current=A))
        await until(lambda: len(api.asked) > 2)
        api.notes, api.registered = {}, True
        await until(lambda: api.notes == {CURRENT: A, STATE: "Degraded", REASON: "Drifted: x"})


async def test_a_changing_reason_is_written_at_intervals(tmp_path: Path) -> None:
    api = Api({CURRENT: A})
    async with agent(tmp_path, api) as side:
        for left in range(20, 0, -1):
            side.shake.report(Status(Phase.DRAINING, "Draining", f"{left} pods are left", current=A))
            await asyncio.sleep(0.01)
        await until(lambda: api.patches)
        assert len(api.patches) == 1
        side.shake.report(Status(Phase.WRITING, current=A))
        side.shake.report(Status(Phase.IDLE, current=A))
        await until(lambda: api.notes.get(STATE) == "Done")
    assert api.notes[REASON] == ""


# The drain that a controller makes.


class Own:
    """A drain of our own."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def drain(self, operation: str, deadline: float) -> None:
        self.calls.append(f"drain {operation}")

    async def uncordon(self, operation: str) -> None:
        self.calls.append(f"uncordon {operation}")

    async def advice(self) -> str:
        return ""


async def ours(operation: str) -> None:
    pass


def answers(api: Api) -> None:
    """Answer as a drain controller does."""
    wish = api.notes.get(DRAIN, "")
    api.cordoned = wish.startswith("drain-")
    api.note(**{DRAINED: wish})


async def test_a_controller_drains_and_uncordons(tmp_path: Path) -> None:
    api = Api({DESIRED: B, DRAINED: "uncordon-x", DRAIN: "uncordon-x"})
    async with agent(tmp_path, api) as side:
        port = EitherDrain(own := Own(), ControllerDrain(side.client, "n", check_lease=ours))
        draining = asyncio.create_task(port.drain("op", 20))
        await until(lambda: api.notes[DRAIN] == f"drain-{B}")
        api.note(**{DESIRED: A})  # the next one: this drain goes on
        seen = len(api.asked)
        await until(lambda: len(api.asked) > seen + 3)
        assert not draining.done()
        assert api.notes[DRAIN] == f"drain-{B}"
        answers(api)
        await draining
        ending = asyncio.create_task(port.uncordon("op"))
        await until(lambda: api.notes[DRAIN] == f"uncordon-{B}")
        assert not ending.done()
        answers(api)
        await ending
    assert own.calls == ["uncordon op"]


def a_pod(name: str, kind: str = "ReplicaSet", **meta: Any) -> dict[str, Any]:
    owner = {"kind": kind, "name": "o", "uid": "o", "controller": True}
    return {
        "metadata": {
            "namespace": "db",
            "name": name,
            "uid": name,
            "resourceVersion": "1",
            "ownerReferences": [owner],
            **meta,
        }
    }


@pytest.mark.finding(
    "peers: pods that are left",
    "While a controller drains, the pods that are left are in the status, and those that block it in `reason`.",
)
async def test_the_pods_that_a_controller_still_has_to_evict_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mco_drain, "REPORT", 0.1)
    reports: list[list[str]] = []
    pods = [a_pod("b"), a_pod("a", deletionTimestamp="2026-01-01T00:00:00Z"), a_pod("ds", "DaemonSet")]
    api = Api({DESIRED: B}, configs={PODS: Answer(500, {"message": "not now"})})
    async with agent(tmp_path, api) as side:
        port = ControllerDrain(
            side.client,
            "n",
            check_lease=ours,
            report=lambda left: reports.append([f"{pod.name}: {pod.why}" for pod in left]),
        )
        draining = asyncio.create_task(port.drain("op", 20))
        await until(lambda: api.notes.get(DRAIN) == f"drain-{B}")  # a list that fails keeps nothing from going on
        api.configs[PODS] = {"items": pods, "metadata": {}}
        await until(lambda: len(reports) > 1)
        answers(api)
        await draining
    assert reports[0] == ["a: terminating", "b: the machine-config-controller has not evicted it yet"]
    assert api.asked.count(f"GET {PODS}") < 60, "it is not listed at each look"


@pytest.mark.finding(
    "peers: nodes that end cordoned", "A node that ends cordoned says that a controller needs it uncordoned."
)
@pytest.mark.parametrize(
    ("cordoned", "drain", "away", "said"),
    [
        (True, f"drain-{B}", False, True),
        (False, f"drain-{B}", False, False),
        (True, "uncordon-x", False, False),
        (True, f"drain-{B}", True, False),
    ],
)
async def test_a_node_that_stays_cordoned_says_what_a_controller_needs(
    tmp_path: Path, cordoned: bool, drain: str, away: bool, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mco_drain, "ADVICE", 1.0)
    async with agent(tmp_path, Api({DESIRED: B, DRAIN: drain}, cordoned=cordoned, away=away)) as side:
        port = EitherDrain(Own(), ControllerDrain(side.client, "n", check_lease=ours))
        assert ("kubectl uncordon n" in await port.advice()) is said


async def test_an_answered_drain_is_not_requested_again(tmp_path: Path) -> None:
    api = Api({DESIRED: B, DRAIN: f"drain-{B}", DRAINED: f"drain-{B}"}, cordoned=True)
    async with agent(tmp_path, api) as side:
        await ControllerDrain(side.client, "n", check_lease=ours).drain("op", 20)
    assert api.patches == []


async def test_a_controller_that_does_not_answer(tmp_path: Path) -> None:
    async with agent(tmp_path, Api({DESIRED: B})) as side:
        with pytest.raises(Refused, match="did not answer the drain of node n") as caught:
            await ControllerDrain(side.client, "n", check_lease=ours).drain("op", 0.1)
    assert caught.value.reason == "DrainTimedOut"


async def test_a_lease_that_is_lost_ends_the_wait(tmp_path: Path) -> None:
    async def lost(operation: str) -> None:
        raise Refused("another holder took it", reason=Reason.LEASE_LOST)

    api = Api({DESIRED: B})
    async with agent(tmp_path, api) as side:
        with pytest.raises(Refused, match="took it"):
            await ControllerDrain(side.client, "n", check_lease=lost).drain("op", 20)
    assert DRAIN not in api.notes


async def test_the_only_node_of_a_control_plane_is_not_drained(tmp_path: Path) -> None:
    api = Api({DESIRED: B, "machineconfiguration.openshift.io/controlPlaneTopology": "SingleReplica"})
    async with agent(tmp_path, api) as side:
        port = EitherDrain(Own(), ControllerDrain(side.client, "n", check_lease=ours))
        await port.drain("op", 20)
        await port.uncordon("op")
    assert api.patches == []


@pytest.mark.parametrize(
    ("notes", "controller", "own"),
    [({}, None, True), ({DRAINED: "uncordon-x"}, None, False), ({DRAINED: "x"}, False, True), ({}, True, False)],
)
async def test_who_drains(tmp_path: Path, notes: dict[str, str], controller: bool | None, own: bool) -> None:
    api = Api({DESIRED: B, DRAIN: "x", **notes})
    async with agent(tmp_path, api) as side:
        port = EitherDrain(mine := Own(), ControllerDrain(side.client, "n", check_lease=ours), controller=controller)
        draining = asyncio.create_task(port.drain("op", 20))
        await until(lambda: mine.calls or api.notes[DRAIN] == f"drain-{B}")
        answers(api)
        await draining
    assert bool(mine.calls) is own


async def test_a_server_that_is_away_does_not_end_a_drain(tmp_path: Path) -> None:
    api = Api({DESIRED: B}, away=True)
    async with agent(tmp_path, api) as side:
        port = EitherDrain(Own(), ControllerDrain(side.client, "n", check_lease=ours))
        draining = asyncio.create_task(port.drain("op", 20))
        await until(lambda: side.troubles)
        api.note(**{DRAINED: "uncordon-x"})
        api.away = False
        await until(lambda: api.notes.get(DRAIN) == f"drain-{B}")
        answers(api)
        await draining
