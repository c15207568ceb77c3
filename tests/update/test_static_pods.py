# SPDX-License-Identifier: Apache-2.0
"""Static pods in an update over the host in memory: the replacement, its check, the way back, and kills."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import yaml

from nodeagent.core.config.file_tree import FileTreeEntry, RegularFile
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.units import UnitEntry
from nodeagent.core.plan.policy import Policy
from nodeagent.domains import default_policy
from nodeagent.errors import Refused, Terminal
from nodeagent.reasons import Reason
from nodeagent.update.next.preflight import OnDrift
from nodeagent.update.ports.host import StaticPodState
from nodeagent.update.run import Ports
from nodeagent.update.stages.compare import mismatches
from nodeagent.update.stages.coordination import Coordination
from nodeagent.update.states import Phase
from tests.world import FakeClock, FakeLease, FakeUnit, World, kill_points
from tests.world.run import Host, config

pytestmark = pytest.mark.looptime

PATH = "/etc/kubernetes/manifests/etcd.yaml"
POLICY_JSON = "/etc/containers/policy.json"
ANY_IMAGE = '{"default": [{"type": "insecureAcceptAnything"}]}'


def manifest(image: str) -> str:
    container = {"name": "etcd", "image": image}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "etcd"}, "spec": {"containers": [container]}}
    return yaml.safe_dump(pod)


def at(image: str, *, policy: bool = False) -> MachineConfig:
    more = {POLICY_JSON: ANY_IMAGE} if policy else {}
    return config(image.replace(":", "-"), {PATH: manifest(image), **more})


@dataclass
class Kubelet:
    """The state that survives the agent: the running pod, and the manifest that is taken away."""

    running: FileTreeEntry | None = None
    taken: FileTreeEntry | None = None
    uid: int = 0
    restarts: int = 0
    does_not_start: set[str] = field(default_factory=set)
    unhealthy: set[str] = field(default_factory=set)
    unhealthy_after_boot: set[str] = field(default_factory=set)
    restarting: set[str] = field(default_factory=set)
    restarts_once: bool = False
    # Another etcd of the host, such as a unit.
    member: bool = False
    # Seconds between two full listings.
    listing: float = 20.0

    def has(self, images: set[str]) -> bool:
        text = self.running.content.decode() if isinstance(self.running, RegularFile) else ""
        return any(f"image: {image}\n" in text for image in images)


class FakeStaticPods:
    def __init__(self, world: World, kubelet: Kubelet) -> None:
        self.world, self.kubelet = world, kubelet
        # The first act of an agent.
        if kubelet.taken is not None:
            world.disk.setdefault(PATH, kubelet.taken)
            kubelet.running, kubelet.taken = world.disk[PATH], None

    async def recover(self) -> str:
        raise AssertionError("done at the start")

    async def replace(self, path: str, node: FileTreeEntry | None, operation: str) -> None:
        assert path == PATH
        assert operation
        if self.world.disk.get(path) == node == self.kubelet.running:
            return
        self.world.tick()
        self.kubelet.taken, self.kubelet.running = self.world.disk.pop(path, None), None
        self.world.tick()
        if node is not None:
            self.world.disk[path] = node
        self.kubelet.taken, self.kubelet.running = None, node
        self.kubelet.uid += 1
        self.world.done.append(f"{self.world.boot}:replace {path}")
        self.world.tick()
        if self.kubelet.has(self.kubelet.does_not_start):
            raise Terminal("does not start", reason=Reason.STATIC_POD_NOT_STARTED)

    async def has_member(self) -> bool:
        return self.kubelet.member

    async def save_keyspace(self) -> None:
        self.world.done.append(f"{self.world.boot}:snapshot")

    async def listing(self) -> float:
        return self.kubelet.listing

    async def state(self, path: str) -> StaticPodState:
        if self.world.disk.get(path) is None:
            return StaticPodState("")
        if self.kubelet.has(self.kubelet.restarting):
            self.kubelet.restarts += 1
        if self.kubelet.restarts_once and self.kubelet.uid > 1:
            self.kubelet.restarts_once = False
            before = self.kubelet.restarts
            self.kubelet.restarts += 1
            return StaticPodState("default/etcd", str(self.kubelet.uid), before, "not ready", etcd=True)
        unhealthy = self.kubelet.unhealthy | (self.kubelet.unhealthy_after_boot if self.world.boot > 1 else set())
        problem = "readyz answers 503" if self.kubelet.has(unhealthy) else ""
        return StaticPodState("default/etcd", str(self.kubelet.uid), self.kubelet.restarts, problem, etcd=True)


@dataclass
class Quorum:
    refused: int = 0
    moves: int = 0
    checks: int = 0

    async def permit_begin(self, work: str, options: Mapping[str, str]) -> None:
        pass

    async def permit_stop(self) -> None:
        self.checks += 1

    async def before_stop(self) -> None:
        self.moves += 1
        if self.refused:
            self.refused -= 1
            raise Refused("etcd: at risk", reason=Reason.ETCD_QUORUM_AT_RISK)


@dataclass
class PodHost(Host):
    kubelet: Kubelet = field(default_factory=Kubelet)
    quorum: Quorum = field(default_factory=Quorum)

    def ports(self) -> Ports:
        coordination = Coordination(FakeLease(self.world), guards=[self.quorum])
        pods = FakeStaticPods(self.world, self.kubelet)
        return replace(super().ports(), coordination=coordination, static_pods=pods)

    async def _policy(self, *_: MachineConfig) -> Policy:
        return default_policy()

    @property
    def image(self) -> str:
        entry: Any = self.world.disk[PATH]
        assert entry == self.kubelet.running
        spec: Mapping[str, Any] = yaml.safe_load(entry.content)["spec"]
        return str(spec["containers"][0]["image"])


async def at_one() -> PodHost:
    host = PodHost(World(units={"crio.service": FakeUnit()}))
    host.want(at("etcd:1"))
    await host.settle()
    assert host.image == "etcd:1"
    host.world.done.clear()
    host.world.calls = 0
    host.quorum = Quorum()
    return host


async def test_a_pod_is_replaced_after_all_other_actions_and_watched() -> None:
    host = await at_one()
    began = FakeClock(host.world).monotonic()
    host.want(at("etcd:2", policy=True))
    await host.settle()
    assert host.actions() == ["reload crio.service", f"replace {PATH}"]
    assert (host.phase, host.image) == (Phase.IDLE, "etcd:2")
    assert host.quorum.moves == 1
    assert host.quorum.checks > 0
    assert FakeClock(host.world).monotonic() - began >= 20 + host.limits.settle
    entry = host.world.history[-1]
    assert (entry.outcome, entry.reboots, entry.disruption) == ("done", 0, "restart")


async def test_a_pod_is_watched_for_a_full_listing_of_its_kubelet() -> None:
    host = await at_one()
    host.kubelet.listing = 90.0
    began = FakeClock(host.world).monotonic()
    host.want(at("etcd:2"))
    await host.settle()
    assert (host.phase, host.image) == (Phase.IDLE, "etcd:2")
    assert FakeClock(host.world).monotonic() - began >= 90 + host.limits.settle


async def test_it_waits_for_the_quorum() -> None:
    host = await at_one()
    host.quorum.refused = 2
    host.want(at("etcd:2"))
    await host.settle()
    assert (host.phase, host.image, host.quorum.moves) == (Phase.IDLE, "etcd:2", 3)


@pytest.mark.parametrize("fault", ["does_not_start", "unhealthy", "restarting"])
async def test_a_bad_pod_is_reverted_without_a_reboot(fault: str) -> None:
    host = await at_one()
    setattr(host.kubelet, fault, {"etcd:2"})
    host.want(at("etcd:2", policy=True))
    await host.settle()
    assert host.image == "etcd:1"
    assert POLICY_JSON not in host.world.disk
    assert host.world.boot == 1
    assert host.actions()[-1] == f"replace {PATH}"
    entry = host.world.history[-1]
    expected = Reason.STATIC_POD_NOT_STARTED if fault == "does_not_start" else Reason.STATIC_POD_UNHEALTHY
    assert (entry.outcome, entry.reason, entry.reboots) == ("reverted", expected, 0)


async def test_a_crash_loop_is_not_waited_for() -> None:
    host = await at_one()
    host.kubelet.unhealthy = host.kubelet.restarting = {"etcd:2"}
    began = FakeClock(host.world).monotonic()
    host.want(at("etcd:2"))
    await host.settle()
    assert host.image == "etcd:1"
    assert host.world.history[-1].reason == Reason.STATIC_POD_UNHEALTHY
    # The rest of it is the watch over the way back.
    assert FakeClock(host.world).monotonic() - began < 20 + host.limits.settle + 10


async def test_one_restart_before_it_works_is_tolerated() -> None:
    host = await at_one()
    host.kubelet.restarts_once = True
    host.want(at("etcd:2"))
    await host.settle()
    assert (host.phase, host.image) == (Phase.IDLE, "etcd:2")


async def test_a_pod_that_is_bad_on_the_way_back_too_is_degraded() -> None:
    host = await at_one()
    host.kubelet.unhealthy = {"etcd:1", "etcd:2"}
    host.want(at("etcd:2"))
    await host.settle()
    assert host.image == "etcd:1"
    assert host.world.history[-1].outcome == "degraded"


async def test_removed_and_added() -> None:
    host = await at_one()
    host.want(config("none", {POLICY_JSON: ANY_IMAGE}))
    await host.settle()
    assert PATH not in host.world.disk
    assert host.kubelet.running is None
    host.want(at("etcd:3"))
    await host.settle()
    assert (host.phase, host.image) == (Phase.IDLE, "etcd:3")


def with_reboot(image: str) -> MachineConfig:
    return config("both", {PATH: manifest(image), "/etc/unlisted": "1"})


async def test_with_a_reboot_it_is_replaced_and_watched_before_it() -> None:
    host = await at_one()
    host.want(with_reboot("etcd:2"))
    await host.settle()
    assert host.actions() == [f"replace {PATH}", "reboot"]
    assert (host.phase, host.image) == (Phase.IDLE, "etcd:2")
    # Before the replacement, and before the reboot.
    assert host.quorum.moves == 2


@pytest.mark.parametrize("fault", ["does_not_start", "unhealthy", "restarting"])
async def test_a_bad_pod_prevents_the_reboot_of_its_plan(fault: str) -> None:
    host = await at_one()
    setattr(host.kubelet, fault, {"etcd:2"})
    host.want(with_reboot("etcd:2"))
    await host.settle()
    assert host.actions() == [f"replace {PATH}", f"replace {PATH}"]
    assert host.image == "etcd:1"
    assert "/etc/unlisted" not in host.world.disk
    assert (host.world.boot, host.world.history[-1].outcome) == (1, "reverted")


async def test_a_revert_after_the_reboot_replaces_the_pod_as_well() -> None:
    host = await at_one()
    host.kubelet.unhealthy_after_boot = {"etcd:2"}
    host.want(with_reboot("etcd:2"))
    await host.settle()
    assert host.actions() == [f"replace {PATH}", "reboot", f"replace {PATH}", "reboot"]
    assert host.image == "etcd:1"
    assert (host.world.history[-1].outcome, host.world.history[-1].reboots) == ("reverted", 2)


async def test_after_a_fallback_reboot_it_is_replaced() -> None:
    host = await at_one()
    host.world.units["kubelet.service"] = FakeUnit(file="enabled", bad_until_boot=2)
    host.want(config("both", {PATH: manifest("etcd:2"), "/etc/kubernetes/credential-providers/x": "1"}))
    await host.settle()
    assert host.actions() == ["restart kubelet.service", "reboot", f"replace {PATH}"]
    assert (host.phase, host.image) == (Phase.IDLE, "etcd:2")
    assert host.world.history[-1].outcome == "done-after-fallback"


@pytest.mark.long
@pytest.mark.parametrize("reboot", [False, True], ids=["restart", "reboot"])
@pytest.mark.parametrize("bad", [False, True], ids=["good", "bad"])
async def test_killed_at_every_point(bad: bool, reboot: bool) -> None:
    desired = with_reboot("etcd:2") if reboot else at("etcd:2", policy=True)
    (other,) = desired.files.keys() - {PATH}

    async def replaced(fuse: int) -> int:
        host = await at_one()
        host.kubelet.unhealthy = {"etcd:2"} if bad else set()
        host.want(desired)
        if fuse:
            await host.kill_at(fuse, power=False)
        await host.settle()
        assert host.image == ("etcd:1" if bad else "etcd:2"), fuse
        assert host.kubelet.taken is None
        assert host.world.holder is None
        assert (other in host.world.disk) is not bad
        return host.world.calls

    calls = await replaced(0)
    assert calls > 20
    for fuse in kill_points(calls):
        await replaced(fuse)


async def test_the_unit_of_etcd_waits_for_the_quorum() -> None:
    host = await at_one()
    host.world.units["etcd.service"] = FakeUnit(file="enabled")
    host.quorum.refused = 2
    host.want(config("unit", {PATH: manifest("etcd:1"), "/etc/default/etcd": "ETCD_NAME=b\n"}))
    await host.settle()
    assert host.actions() == ["restart etcd.service"]
    assert host.quorum.moves == 3
    assert host.quorum.checks > 0


async def test_the_keyspace_is_saved_before_the_unit_of_etcd_changes() -> None:
    host = await at_one()
    host.world.units["etcd.service"] = FakeUnit(file="enabled")
    unit = UnitEntry("etcd.service", contents="[Service]\nExecStart=/usr/bin/etcd")
    host.want(replace(config("unit", {PATH: manifest("etcd:1")}), units={"etcd.service": unit}))
    await host.settle()
    assert host.actions() == ["daemon-reload", "snapshot", "restart etcd.service"]


@pytest.mark.parametrize("member", [False, True])
async def test_an_added_etcd_waits_for_the_quorum_of_a_member_that_runs(member: bool) -> None:
    host = PodHost(World(units={"crio.service": FakeUnit()}))
    host.want(config("none", {POLICY_JSON: ANY_IMAGE}))
    await host.settle()
    host.kubelet.member, host.quorum = member, Quorum(refused=2)
    host.want(at("etcd:1", policy=True))
    await host.settle()
    assert (host.phase, host.image) == (Phase.IDLE, "etcd:1")
    assert host.quorum.moves == (3 if member else 0)


def owned(revision: int) -> str:
    pod = yaml.safe_load(manifest(f"etcd:{revision}"))
    pod["metadata"] |= {"namespace": "openshift-etcd", "labels": {"revision": str(revision)}}
    return yaml.safe_dump(pod)


@pytest.mark.parametrize("on_drift", ["report", "refuse", "repair"])
async def test_the_manifest_of_an_operator_is_watched_and_never_written(on_drift: OnDrift) -> None:
    host = PodHost(World(units={"crio.service": FakeUnit()}), on_drift=on_drift)
    first, second = (RegularFile(owned(each).encode()) for each in (1, 2))
    host.world.disk[PATH] = host.kubelet.running = first
    host.want(config("watched", {PATH: owned(1)}))
    await host.settle()
    assert host.phase is Phase.IDLE
    # The operator writes its next revision.
    host.world.disk[PATH] = host.kubelet.running = second
    watched = await mismatches(host.ports(), config("watched", {PATH: owned(1)}), watched=True)
    assert watched == {f"file:{PATH}": "differs; an operator writes it"}
    host.want(config("other", {PATH: owned(1), POLICY_JSON: ANY_IMAGE}))
    await host.settle()
    assert (host.phase, host.actions()) == (Phase.IDLE, ["reload crio.service"])
    assert host.world.disk[PATH] == second
    # The config follows, and then drops it.
    for files in ({PATH: owned(2), POLICY_JSON: ANY_IMAGE}, {POLICY_JSON: ANY_IMAGE}):
        host.want(config(f"files-{len(files)}", files))
        await host.settle()
        assert (host.phase, host.world.disk[PATH]) == (Phase.IDLE, second)
    assert host.actions() == ["reload crio.service"]
    assert {entry.outcome for entry in host.world.history} == {"done"}
