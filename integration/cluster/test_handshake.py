# SPDX-License-Identifier: Apache-2.0
"""A machine-config-controller drives nodeagent: its loop and executor on a host in memory, all that is of the cluster
on a real API server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from integration.cluster.api import ApiError
from integration.cluster.cluster import Cluster
from integration.cluster.controller import CONFIGS, MCO, Controller, Memory
from integration.cluster.other_holders import client_of, goodbye
from nodeagent.agent.loop import Loop
from nodeagent.agent.report.report import Report
from nodeagent.core.config.machineconfig import ConfigSource, MachineConfig
from nodeagent.core.config.parse import parse
from nodeagent.core.plan.policy import DRAIN, NONE, Entry, Policy, restart
from nodeagent.errors import AgentError
from nodeagent.features.cluster import controller_drain as mco_drain
from nodeagent.features.cluster import handshake
from nodeagent.features.cluster.controller_drain import ControllerDrain
from nodeagent.features.cluster.handshake import Handshake
from nodeagent.kube import client as client_module
from nodeagent.kube.client import KubeClient
from nodeagent.report.status import Status
from nodeagent.update.next.preflight import Desired, read_source
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.store import ApplyRequest
from nodeagent.update.stages.coordination import Coordination
from nodeagent.update.states import Phase
from tests.world import FakeLease, FakeReporter, FakeUnit, World
from tests.world.run import LIMITS, POLICY, Host

OURS: Final = handshake.CONFIGS[1]
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MANIFEST: Final = Path(__file__).parents[2] / "packaging" / "kubernetes" / "machineconfigs.yaml"
EVERY: Final = 0.2


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("READ", "WRITE"):
        monkeypatch.setattr(handshake, f"{name}_FIRST_PAUSE", 0.2)
        monkeypatch.setattr(handshake, f"{name}_LONGEST_PAUSE", 0.5)
    monkeypatch.setattr(mco_drain, "POLL", 0.2)
    monkeypatch.setattr(client_module, "FIRST_PAUSE", 0.05)


@pytest.fixture
def controller(cluster: Cluster, node: str) -> Controller:
    return Controller(cluster, node)


class Driven(Host):
    """A host whose desired config comes from the Node, and whose status goes there."""

    def __init__(self, client: KubeClient, node: str) -> None:
        super().__init__(World(units={"app.service": FakeUnit()}), replace(LIMITS, settle=0.05, lease_retry=0.1))
        self.memory = Memory()
        self.troubles: list[str] = []
        self._client = client
        self._node = node

    async def _policy(self, *_: MachineConfig) -> Policy:
        entries = [Entry("/etc/app", (DRAIN, restart("app.service"))), Entry("/etc/quiet", (NONE,))]
        return Policy(files={entry.key: entry for entry in entries}, units={}, sshkey=None, fields=POLICY.fields)

    async def _load(self, digest: str) -> Desired:
        source = self.world.configs[digest]
        return Desired(source, parse(source.text))

    async def _desired(self) -> Desired | None:
        source = await self.shake.desired()
        return read_source(source) if source is not None else None

    async def _requested(self, source: ConfigSource) -> None:
        assert self.loop is not None
        async with self.loop.recorded(ApplyRequest(source.digest)):
            pass

    def build(self) -> Loop:
        current = self.world.configs[self.world.current].name if self.world.current else ""
        self.report = Report(Status(self.phase, self.record.reason, self.record.message, current=current))
        self.report.add(lambda _event, status: self.shake.report(status))
        self.shake.report(self.report.status)
        self.report.add(lambda event, _status: FakeReporter(self.world).emit(event))
        ports = self.ports()
        drain = ControllerDrain(self._client, self._node, check_lease=ports.coordination.lease.check)
        # The release uncordons through the coordination.
        coordination = Coordination(FakeLease(self.world), node=drain)
        return self.build_with(replace(ports, node=drain, coordination=coordination, reporter=self.report))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """One life of the daemon."""
        self.shake = Handshake(
            self._client,
            self._node,
            self.memory,
            changed=lambda _: self.loop.look_again() if self.loop else None,
            requested=self._requested,
            on_error=lambda fault: self.troubles.append(fault.reason if fault else ""),
            every=EVERY,
        )
        loop = self.build()
        tasks = [asyncio.create_task(self.shake.run()), asyncio.create_task(loop.run())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[KubeClient]:
    async with client_of(cluster) as made:
        yield made
    await goodbye(cluster)


@pytest.fixture
def host(client: KubeClient, node: str) -> Driven:
    return Driven(client, node)


async def until(true: Callable[[], Any]) -> None:
    """Send a request in a thread, so that the agent under test continues."""
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(true):
            await asyncio.sleep(0.05)


def at(controller: Controller, name: str, state: str = "Done") -> Callable[[], bool]:
    def is_so() -> bool:
        notes = controller.notes()
        return (notes.get("currentConfig"), notes.get("state")) == (name, state)

    return is_so


def reports_of(cluster: Cluster, node: str) -> list[tuple[str, str, str]]:
    """State, currentConfig and lastAppliedDrain after each write that changed one of them, as the audit log has it."""
    found: list[tuple[str, str, str]] = []
    for event in cluster.audit():
        what = event.get("objectRef") or {}
        if (what.get("resource"), what.get("name"), event["verb"]) != ("nodes", node, "patch"):
            continue
        if "responseObject" not in event:  # The client was gone before the answer, and repeats the request.
            continue
        notes = event["responseObject"]["metadata"].get("annotations") or {}
        now = tuple(notes.get(MCO + key, "") for key in ("state", "currentConfig", "lastAppliedDrain"))
        if not found or found[-1] != now:
            found.append(now)
    return found


async def test_a_controller_drives_an_update_with_its_own_drain(
    cluster: Cluster, node: str, host: Driven, controller: Controller
) -> None:
    first, second = f"rendered-{node}-1", f"rendered-{node}-2"
    controller.make(first, app="1")
    controller.make(second, app="2")
    pod = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]}
    cluster.admin.create("/api/v1/namespaces/default/pods", {"metadata": {"name": node}, "spec": pod})
    controller.desire(first)
    async with host.running(), controller.running():
        await until(at(controller, first))
        assert host.actions() == ["restart app.service"]
        controller.drains = False
        controller.desire(second)
        await until(lambda: controller.notes().get("desiredDrain") == f"drain-{second}")
        await until(at(controller, first, "Working"))
        assert host.phase is Phase.DRAINING
        assert host.actions() == ["restart app.service"], "nothing is done before the node is empty"
        controller.drains = True
        await until(at(controller, second))
    assert cluster.admin.find(f"/api/v1/namespaces/default/pods/{node}") is None
    found = controller.node()
    assert not found["spec"].get("unschedulable")
    assert controller.notes()["lastAppliedDrain"] == f"uncordon-{second}"
    assert host.actions() == ["restart app.service"] * 2
    reports = reports_of(cluster, node)
    states = [pair for pair, _ in groupby((state, current) for state, current, _ in reports)]
    assert states[-3:] == [("Done", first), ("Working", first), ("Done", second)]
    # The new config is reported after the verification and the release of the node, not before.
    assert reports[-1] == ("Done", second, f"uncordon-{second}")
    assert controller.notes().get("reason", "") == ""


async def test_a_newer_config_takes_over_before_anything_is_written(
    node: str, host: Driven, controller: Controller
) -> None:
    names = [f"rendered-{node}-{number}" for number in range(3)]
    for number, name in enumerate(names):
        controller.make(name, app=str(number))
    controller.desire(names[0])
    async with host.running(), controller.running():
        await until(at(controller, names[0]))
        host.world.holder = Holder("jane", "maintenance", "new disks", "now")
        controller.desire(names[1])
        await until(lambda: "jane" in controller.notes().get("reason", ""))
        await until(at(controller, names[0], "Working"))
        controller.desire(names[2])
        await until(lambda: host.record.to_name == names[2])
        host.world.holder = None
        await until(at(controller, names[2]))
    ends = [(entry.to_name, str(entry.outcome)) for entry in host.world.history]
    assert ends == [(names[0], "done"), (names[1], "superseded"), (names[2], "done")]


async def test_one_that_comes_in_the_drain_is_the_next_update(node: str, host: Driven, controller: Controller) -> None:
    names = [f"rendered-{node}-{number}" for number in range(3)]
    for number, name in enumerate(names):
        controller.make(name, app=str(number))
    controller.desire(names[0])
    async with host.running(), controller.running():
        await until(at(controller, names[0]))
        controller.drains = False
        controller.desire(names[1])
        await until(lambda: controller.notes().get("desiredDrain") == f"drain-{names[1]}")
        controller.desire(names[2])
        await until(lambda: host.memory.source is not None and host.memory.source.name == names[2])
        controller.drains = True
        await until(at(controller, names[2]))
    # Whichever of the two was chosen, it was whole.
    outcomes = [str(entry.outcome) for entry in host.world.history]
    assert outcomes in (["done", "done", "done"], ["done", "superseded", "done"])
    assert host.world.disk["/etc/app"].content == b"2"  # type: ignore[union-attr]


async def test_a_config_that_is_refused_degrades_with_a_clean_reason(
    node: str, host: Driven, controller: Controller
) -> None:
    good, bad, fixed = (f"rendered-{node}-{word}" for word in ("good", "bad", "impossible"))
    controller.make(good, app="1")
    controller.make(bad, spec={"nonsense": "line\nline"}, app="2")
    controller.make(fixed, spec={"fips": True}, app="3")
    controller.desire(good)
    async with host.running(), controller.running():
        await until(at(controller, good))
        controller.desire(bad)
        await until(at(controller, good, "Degraded"))
        reason = controller.notes()["reason"]
        assert reason.startswith("InvalidInput: ")
        assert "unknown key 'nonsense'" in reason
        assert "\n" not in reason
        controller.desire(fixed)
        await until(at(controller, good, "Unreconcilable"))
        controller.desire(f"rendered-{node}-missing")
        await until(lambda: controller.notes().get("reason", "").startswith("ConfigNotFound: "))
        controller.desire(good)
        await until(at(controller, good))
        assert controller.notes().get("reason", "") == ""


async def test_a_failed_config_is_tried_again_on_request(
    cluster: Cluster, node: str, host: Driven, controller: Controller
) -> None:
    good, bad = f"rendered-{node}-good", f"rendered-{node}-bad"
    controller.make(good, app="1")
    controller.make(bad, app="2")
    controller.desire(good)
    async with host.running(), controller.running():
        await until(at(controller, good))
        host.limits = replace(host.limits, may_reboot=False)
        assert host.loop is not None
        host.loop.executor.policy = host.limits
        host.world.units["app.service"].fail_restarts = 1
        controller.desire(bad)
        await until(at(controller, good, "Degraded"))
        assert controller.notes()["reason"].startswith("Reverted: ")
        retry = {"metadata": {"annotations": {"nodeagent.org/retry": bad}}}
        cluster.admin.patch(f"/api/v1/nodes/{node}", retry)
        await until(at(controller, bad))
    assert "nodeagent.org/retry" not in controller.node()["metadata"]["annotations"]


async def test_it_catches_up_after_the_api_server_was_away(
    cluster: Cluster, node: str, host: Driven, controller: Controller
) -> None:
    first, second = f"rendered-{node}-1", f"rendered-{node}-2"
    controller.make(first, quiet="1")
    controller.make(second, quiet="2")
    controller.desire(first)
    async with host.running():
        await until(at(controller, first))
        assert host.loop is not None
        cluster.apiserver.pause()
        try:
            host.report.status = replace(host.report.status, phase=Phase.DEGRADED, reason="Drifted")
            host.shake.report(host.report.status)
            await asyncio.wait_for(_seen(host, "KubeUnreachable"), 180)
            assert host.memory.source is not None
            assert host.memory.source.name == first
        finally:
            cluster.apiserver.resume()
        await until(at(controller, first, "Degraded"))
    # A daemon that starts while the server is away has what was desired last.
    cluster.apiserver.pause()
    try:
        async with host.running():
            desired = await host.shake.desired()
            assert desired is not None
            assert desired.name == first
    finally:
        cluster.apiserver.resume()


async def _seen(host: Driven, reason: str) -> None:
    while reason not in host.troubles:
        await asyncio.sleep(0.05)


async def test_a_node_that_is_created_again_is_annotated_again(
    cluster: Cluster, node: str, host: Driven, controller: Controller
) -> None:
    name = f"rendered-{node}"
    controller.make(name, app="1")
    controller.desire(name)
    async with host.running(), controller.running():
        await until(at(controller, name))
    async with host.running():
        cluster.admin.delete(f"/api/v1/nodes/{node}")
        cluster.node(node)
        await until(at(controller, name))


async def test_configs_of_our_own_kind(cluster: Cluster, node: str, host: Driven, controller: Controller) -> None:
    definition = yaml.safe_load(MANIFEST.read_text())
    if cluster.admin.find(f"{CRDS}/{definition['metadata']['name']}") is None:
        cluster.admin.create(CRDS, definition)
        cluster.wait_served(definition)
    name = f"rendered-{node}"
    controller.make(name, spec={"future": {"kept": [1]}}, path=OURS, app="1")
    kept = cluster.admin.get(f"{OURS}/{name}")
    assert kept["spec"]["future"] == {"kept": [1]}
    with pytest.raises(ApiError, match="a config does not change"):
        cluster.admin.patch(f"{OURS}/{name}", {"spec": {"future": {"kept": [2]}}})
    cluster.admin.patch(f"{OURS}/{name}", {"metadata": {"labels": {"a": "b"}}})
    good = f"rendered-{node}-good"
    controller.make(good, path=OURS, app="1")
    controller.desire(good)
    async with host.running(), controller.running():
        await until(at(controller, good))
    assert cluster.admin.find(f"{CONFIGS}/{good}") is None


@pytest.mark.slow
async def test_at_rest_the_node_is_watched(cluster: Cluster, node: str, controller: Controller) -> None:
    """By the API server's own account, at the real pace: what an agent asks for after it came to rest."""
    name = f"rendered-{node}"
    controller.make(name, quiet="1")
    controller.annotate(desiredConfig=name, currentConfig=name, state="Done")
    user = f"agent-of-{node}"
    async with client_of(cluster, user) as client:
        shake = Handshake(client, node, Memory(), changed=lambda _: None)
        shake.report(Status(Phase.IDLE, current=name))
        running = asyncio.create_task(shake.run())
        try:
            async with asyncio.timeout(60):
                while await _named(shake) != name:
                    await asyncio.sleep(0.05)
            before = client.requests
            # What kubelets do: the Node changes all the time.
            for number in range(40):
                await asyncio.to_thread(controller.annotate, heartbeat=str(number))
                await asyncio.sleep(1)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        asked = client.requests - before
    events = [event for event in cluster.audit() if event["user"]["username"] == user]
    verbs = Counter((event["verb"], event["objectRef"]["resource"]) for event in events)
    # The watch may have begun after the config was there.
    assert asked <= 1
    # A watch has an entry for its begin and one for its end.
    assert verbs.pop(("watch", "nodes")) <= 2
    assert sum(verbs.values()) == client.requests - 1
    assert verbs["get", "nodes"] == 1
    assert verbs["patch", "nodes"] == 0
    assert verbs["get", "machineconfigs"] == 1


async def _named(shake: Handshake) -> str:
    try:
        source = await shake.desired()
    except AgentError as error:
        return error.reason
    return source.name if source else ""
