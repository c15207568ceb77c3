# SPDX-License-Identifier: Apache-2.0
"""Drift while no update is under way: what is compared when, and what is reported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from types import MappingProxyType

import pytest

from nodeagent.agent.report.report import Report
from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.config.machineconfig import MachineConfig, UnitEntry
from nodeagent.features.drift import monitor
from nodeagent.features.drift.events import DriftChanged
from nodeagent.features.drift.monitor import DriftMonitor
from nodeagent.features.drift.view import drift_of
from nodeagent.report.status import Status
from nodeagent.update.history.entry import entry_of_request
from nodeagent.update.next.preflight import Desired
from nodeagent.update.ports.events import (
    Event,
    HostDegraded,
    UpdateContext,
    UpdateFinished,
    UpdateStarted,
)
from nodeagent.update.states import Phase
from tests.world import FakeUnit, Fault, World, lost_answer
from tests.world.os_host import B_DIGEST, FIRST, at_old, on
from tests.world.run import Host, config

pytestmark = pytest.mark.looptime

PATH, OTHER = "/etc/app/x", "/etc/quiet/q"
A = config("a", {PATH: "1", OTHER: "1"})
B = config("b", {PATH: "2", OTHER: "1"})


class FakeWatch:
    """The watch of a disk in memory: a test reports the changes. ``None`` stands for lost events."""

    def __init__(self) -> None:
        self.paths: Collection[str] = ()
        self.unwatched = 0
        self.armed = 0
        self._seen: set[str] | None = set()
        self._event = asyncio.Event()

    async def watch(self, paths: Collection[str]) -> int:
        self.paths = set(paths)
        self.armed += 1
        return self.unwatched

    async def wait(self) -> None:
        await self._event.wait()

    def changed(self) -> Collection[str] | None:
        seen, self._seen = self._seen, set()
        self._event.clear()
        return seen

    def close(self) -> None:
        self.paths = ()

    def change(self, path: str | None) -> None:
        self._seen = None if path is None or self._seen is None else {*self._seen, path}
        self._event.set()


class Scene:
    def __init__(self, host: Host, notes: dict[str, str] | None = None) -> None:
        self.host = host
        self.watch = FakeWatch()
        self.report = Report(Status())
        self.events: list[Event] = []
        self.compared: list[str] = []
        ports = host.ports()
        self.by: dict[str, str] = {}
        self.found = 0
        self.notes = {} if notes is None else notes
        self.monitor = DriftMonitor(ports, self.watch, self, self.report, self._load, self._find, self)
        self.report.add(self.monitor.sink)
        self.report.add(lambda event, _status: self.events.append(event))

    async def note(self, key: str) -> str:
        return self.notes.get(key, "")

    async def keep_note(self, key: str, text: str) -> None:
        self.notes[key] = text

    def _find(self) -> None:
        self.found += 1

    async def of(self, paths: Collection[str]) -> Mapping[str, str]:
        return {path: who for path, who in self.by.items() if path in paths}

    async def _load(self, digest: str) -> Desired:
        self.compared.append(digest)
        return await self.host._load(digest)

    def by_hand(self, path: str, text: str) -> None:
        self.host.world.disk[path] = RegularFile(text.encode())
        self.watch.change(path)

    def entries(self) -> list[str]:
        return [each.entry for each in drift_of(self.report.status)]

    def drifts(self) -> list[Event]:
        return [event for event in self.events if isinstance(event, DriftChanged)]


@asynccontextmanager
async def watched(first: MachineConfig = A, disk: Mapping[str, str] = MappingProxyType({})) -> AsyncIterator[Scene]:
    host = Host(World(units={"app.service": FakeUnit(), "web.service": FakeUnit()}))
    host.world.disk |= {path: RegularFile(text.encode()) for path, text in disk.items()}
    host.want(first)
    await host.settle()
    scene = Scene(host)
    task = asyncio.create_task(scene.monitor.run())
    try:
        await asyncio.sleep(1)
        assert scene.watch.paths == first.files.keys()
        yield scene
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_next_revision_of_an_operator_is_reported() -> None:
    path = "/etc/kubernetes/manifests/etcd-pod.yaml"
    text = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: etcd, namespace: openshift-etcd, labels: {revision: '7'}}\n"
        "spec: {containers: [{name: etcd, image: etcd}]}\n"
    )
    async with watched(config("watched", {path: text}), {path: text}) as scene:
        scene.by_hand(path, text.replace("'7'", "'8'"))
        await asyncio.sleep(5)
        (found,) = drift_of(scene.report.status)
        assert (found.entry, found.why) == (f"file:{path}", "differs; an operator writes it")


async def test_a_change_by_hand_is_reported_once_and_so_is_its_end() -> None:
    async with watched() as scene:
        assert not scene.drifts()
        scene.by_hand(OTHER, "2")
        await asyncio.sleep(5)
        (found,) = drift_of(scene.report.status)
        assert (found.entry, found.why, bool(found.since)) == (f"file:{OTHER}", "differs", True)
        scene.by_hand(OTHER, "3")
        await asyncio.sleep(5)
        (event,) = scene.drifts()
        assert (event.reason, len(event.drift)) == ("Drifted", 1)
        scene.by_hand(OTHER, "1")
        await asyncio.sleep(10)
        assert scene.entries() == []
        assert not scene.drifts()[-1].drift
        assert scene.watch.armed == 1, "one entry was compared, not all"


async def test_the_program_is_named_where_it_is_known() -> None:
    async with watched() as scene:
        scene.by = {OTHER: "vim, pid 7, login core"}
        scene.by_hand(OTHER, "2")
        await asyncio.sleep(0.5)
        scene.by = {}
        await asyncio.sleep(5)
        (found,) = drift_of(scene.report.status)
        assert found.by == "vim, pid 7, login core", "although it had ended when the file was compared"
        (event,) = scene.drifts()
        assert isinstance(event, DriftChanged)
        assert "vim" in event.message
        assert scene.found == 1


async def test_nothing_happens_while_nothing_changes() -> None:
    async with watched() as scene:
        before = len(scene.compared)
        await asyncio.sleep(monitor.COMPARE_ALL - 60)
        assert len(scene.compared) == before
        scene.host.world.disk[OTHER] = RegularFile(b"without an event")
        await asyncio.sleep(120)
        assert scene.entries() == [f"file:{OTHER}"]


async def test_lost_events_lead_to_a_comparison_of_everything() -> None:
    async with watched() as scene:
        scene.host.world.disk[PATH] = RegularFile(b"2")
        scene.host.world.disk[OTHER] = RegularFile(b"2")
        scene.watch.change(None)
        await asyncio.sleep(5)
        assert scene.entries() == [f"file:{PATH}", f"file:{OTHER}"]
        assert scene.watch.armed == 2


async def test_directories_that_are_not_watched_are_a_problem_and_compared_more_often() -> None:
    async with watched() as scene:
        scene.watch.unwatched = 3
        scene.watch.change(None)
        await asyncio.sleep(5)
        (problem,) = scene.report.status.problems
        assert problem.reason == "NoWatch"
        scene.host.world.disk[OTHER] = RegularFile(b"2")
        scene.watch.unwatched = 0
        await asyncio.sleep(monitor.COMPARE_UNWATCHED + 1)
        assert scene.entries() == [f"file:{OTHER}"]
        assert scene.report.status.problems == ()


async def test_a_file_that_changes_all_the_time_is_compared_less_and_less_often() -> None:
    async with watched() as scene:
        before = len(scene.compared)
        for number in range(3600):
            scene.by_hand(OTHER, str(number))
            await asyncio.sleep(1)
        assert len(scene.compared) - before < 3600 / monitor.BUSY + 10
        assert len(scene.drifts()) == 1


async def test_an_update_is_no_drift() -> None:
    async with watched() as scene:
        host = scene.host
        host.want(B)
        scene.report.emit(UpdateStarted(UpdateContext(Phase.IDLE), "Reload", 1))
        under_way = {"phase": "Writing", "leg": {"type": "Apply"}, "update_id": "u"}
        host.world.record = {**host.world.record, **under_way}
        scene.by_hand(PATH, "2")
        await asyncio.sleep(60)
        assert not scene.drifts()
        host.world.record = {**host.world.record, "phase": "Idle", "leg": {"type": "Rest"}, "update_id": ""}
        host.world.current = host.wanted
        scene.report.emit(UpdateFinished(entry_of_request("b", host.wanted, "now", "done"), 0))
        await asyncio.sleep(60)
        assert scene.entries() == []
        scene.by_hand(PATH, "1")
        await asyncio.sleep(5)
        assert scene.entries() == [f"file:{PATH}"], "compared with the new config"


async def test_a_host_half_way_between_two_configs_is_not_compared() -> None:
    async with watched() as scene:
        host = scene.host
        host.world.record = {**host.world.record, "phase": "Degraded", "update_id": "u", "unfinished": [host.wanted]}
        scene.report.emit(HostDegraded(UpdateContext(Phase.DEGRADED), "half way", "ActionFailed"))
        scene.by_hand(PATH, "2")
        await asyncio.sleep(60)
        assert not scene.drifts()


async def test_an_update_leaves_alone_what_it_does_not_change() -> None:
    async with watched() as scene:
        host = scene.host
        host.on_drift = "report"
        host.world.disk[OTHER] = RegularFile(b"by hand")
        host.want(B)
        await host.settle()
        assert (host.phase, host.configs[host.world.current].name) == (Phase.IDLE, "b")
        assert host.world.disk == {PATH: RegularFile(b"2"), OTHER: RegularFile(b"by hand")}
        host.want(config("c", {PATH: "2", OTHER: "3"}))
        await host.settle()
        assert host.world.disk[OTHER] == RegularFile(b"3"), "the config changes it, so it is written"
        assert host.world.history[-1].outcome == "done"


async def test_a_file_that_leaves_the_config_is_removed_whatever_is_in_it() -> None:
    async with watched() as scene:
        host = scene.host
        host.on_drift = "report"
        host.world.disk[OTHER] = RegularFile(b"by hand")
        host.want(config("less", {PATH: "1"}))
        await host.settle()
        assert (host.phase, host.world.disk) == (Phase.IDLE, {PATH: RegularFile(b"1")})


@asynccontextmanager
async def after_boot(host: Host, notes: dict[str, str]) -> AsyncIterator[Scene]:
    """The monitor of one life of the agent, after its first comparison."""
    scene = Scene(host, notes)
    task = asyncio.create_task(scene.monitor.run())
    try:
        await asyncio.sleep(5)
        yield scene
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def another_program_updates_the_os(host: Host) -> None:
    """As ``rpm-ostree rebase`` or ``bootc switch`` and a reboot."""
    world = host.world
    other = replace(FIRST, id="os-bbbb.0", version="2", digest=B_DIGEST, checksum=B_DIGEST, staged=True, booted=False)
    world.deployments.insert(0, other)
    world.shut_down()


@pytest.mark.finding(
    "OS: what a boot brings",
    "After a boot the booted OS is compared with the current config, and a difference is drift.",
)
@pytest.mark.finding("OS: drift of another OS", "Drift that the boot of another OS caused names that OS.")
async def test_another_os_that_was_booted_is_drift_and_the_cause_of_what_it_brought() -> None:
    chrony = "/etc/chrony"
    host, notes = await at_old(on("a", "old", {chrony: "a", OTHER: "1"})), dict[str, str]()
    async with after_boot(host, notes) as scene:
        assert scene.entries() == []
    another_program_updates_the_os(host)
    host.world.disk[OTHER] = RegularFile(b"by an operator")
    async with after_boot(host, notes) as scene:
        found = {each.entry: each for each in drift_of(scene.report.status)}
        assert found.keys() == {f"file:{chrony}", f"file:{OTHER}", "osImageURL:osImageURL"}
        assert found[f"file:{chrony}"].by == found["osImageURL:osImageURL"].by == "the boot of OS 2 (os-bbbb.0)"
        assert found[f"file:{OTHER}"].by == "", "no default of the OS is there"
        assert "the boot of OS 2" in scene.drifts()[-1].message
    async with after_boot(host, notes) as scene:
        assert "the boot of OS 2 (os-bbbb.0)" in {each.by for each in drift_of(scene.report.status)}, "a restart"


async def test_an_os_update_of_the_agent_is_no_cause_of_drift() -> None:
    host, notes = await at_old(on("a", "old", {OTHER: "1"})), dict[str, str]()
    async with after_boot(host, notes) as scene:
        assert scene.entries() == []
    host.want(on("b", "new", {OTHER: "1"}))
    await host.settle()
    host.world.disk["/usr" + OTHER] = host.world.disk[OTHER] = RegularFile(b"b")
    async with after_boot(host, notes) as scene:
        assert [(each.entry, each.by) for each in drift_of(scene.report.status)] == [(f"file:{OTHER}", "")]


async def test_an_os_that_cannot_be_read_is_compared_again_soon() -> None:
    host = await at_old(on("a", "old", {OTHER: "1"}))
    another_program_updates_the_os(host)
    host.world.faults.append(Fault("list deployments", lost_answer(), times=1))
    async with after_boot(host, {}) as scene:
        assert scene.entries() == []
        await asyncio.sleep(monitor.COMPARE_UNWATCHED + 1)
        assert scene.entries() == ["osImageURL:osImageURL"]


@pytest.mark.finding(
    "users: units that exist nowhere",
    "An entry for a unit that exists nowhere is a problem in the status, until it exists.",
)
async def test_a_unit_from_nowhere_is_in_the_status() -> None:
    new = config("a", {PATH: "1"}, [UnitEntry("wep.service", enabled=True)])
    async with watched(new) as scene:
        (problem,) = scene.report.status.problems
        assert (problem.topic, problem.reason) == ("units", "UnitMissing")
        assert "did you mean web.service?" in problem.message
        scene.host.world.units["wep.service"] = FakeUnit()
        scene.watch.change(None)
        await asyncio.sleep(5)
        assert scene.report.status.problems == ()
