# SPDX-License-Identifier: Apache-2.0
"""Drifted entries are put back without an update: which, when, and when not."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from nodeagent.agent.report.report import Report
from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.config.machineconfig import MachineConfig, UnitEntry
from nodeagent.core.plan.policy import DAEMON_RELOAD, Entry, Policy
from nodeagent.errors import Terminal
from nodeagent.features.drift import repair
from nodeagent.features.drift.decide import CONTENDED, FIRST_PAUSE, LONGEST_PAUSE, DriftedEntry, RepairPace
from nodeagent.features.drift.events import DriftChanged
from nodeagent.features.drift.repair import DriftRepair
from nodeagent.features.drift.view import drift_of
from nodeagent.reasons import Reason
from nodeagent.report.part_view import Disruption
from nodeagent.report.status import Status
from nodeagent.update.next.preflight import OnDrift
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.events import Event, LeaseChanged
from nodeagent.update.stages.compare import mismatches
from nodeagent.update.states import Phase
from tests.world import FakeUnit, Fault, World
from tests.world.run import POLICY, Host, config

pytestmark = pytest.mark.looptime

APP, QUIET, UNLISTED = "/etc/app/x", "/etc/quiet/q", "/etc/unlisted"
DROPIN = "/etc/systemd/system/web.service.d/10-a.conf"
UNIT = UnitEntry("web.service", enabled=True, dropins={"10-a.conf": "[Service]\n"})
A = config("a", {APP: "1", QUIET: "1", UNLISTED: "1"}, units=[UNIT])


class Scene:
    def __init__(self, host: Host, on_drift: OnDrift) -> None:
        self.host = host
        self.ports = host.ports()
        self.report = Report(Status())
        self.events: list[Event] = []
        self.report.add(lambda event, _status: self.events.append(event))
        self.repair = DriftRepair(
            self.ports, self.report, lambda: self.report.status, host._load, self._policy, on_drift
        )

    async def _policy(self, *_: MachineConfig) -> Policy:
        return POLICY

    async def compare(self) -> None:
        """Report drift as the watch does."""
        wrong = await mismatches(self.ports, A)
        drift = [DriftedEntry(entry, why, self.ports.clock.now()) for entry, why in wrong.items()]
        self.report.emit(DriftChanged("a", tuple(drift), ""))

    async def turn(self) -> float | None:
        await self.compare()
        delay = await self.repair()
        await self.compare()
        return delay

    def by_hand(self, *paths: str) -> None:
        for path in paths:
            self.host.world.disk[path] = RegularFile(b"by hand")

    def problem(self) -> tuple[str, str]:
        (found,) = self.report.status.problems
        return found.reason, found.message


async def scene(on_drift: OnDrift = "repair") -> Scene:
    host = Host(World(units={"app.service": FakeUnit(), "web.service": FakeUnit()}))
    host.want(A)
    await host.settle()
    assert host.phase is Phase.IDLE
    host.world.done.clear()
    return Scene(host, on_drift)


async def test_what_needs_no_action_is_put_back_and_the_rest_is_left() -> None:
    it = await scene()
    it.by_hand(APP, QUIET, UNLISTED)
    await it.turn()
    assert await it.turn() is None, "they are left until they change"
    disk = it.host.world.disk
    assert disk[QUIET] == RegularFile(b"1")
    assert disk[APP] == disk[UNLISTED] == RegularFile(b"by hand")
    reason, message = it.problem()
    assert reason == "Drifted"
    assert f"file:{APP}: putting it back requires Restart app.service" in message
    assert f"file:{UNLISTED}: putting it back requires Drain, Reboot" in message
    assert it.host.actions() == [], "nothing restarted"
    it.host.world.disk |= {APP: RegularFile(b"1"), UNLISTED: RegularFile(b"1")}
    await it.turn()
    assert it.report.status.problems == ()


async def test_another_os_is_left_to_an_update() -> None:
    it = await scene()
    found = DriftedEntry("osImageURL:osImageURL", "is sha256:b", it.ports.clock.now())
    it.report.emit(DriftChanged("a", (found,), ""))
    await it.repair()
    assert it.problem() == ("Drifted", "osImageURL:osImageURL: putting it back requires an update of the OS")
    assert await it.repair() is None


@pytest.mark.parametrize("on_drift", ["report", "refuse"])
async def test_nothing_is_written_unless_that_is_set(on_drift: OnDrift) -> None:
    it = await scene(on_drift)
    it.by_hand(QUIET)
    assert await it.turn() is None
    assert it.host.world.disk[QUIET] == RegularFile(b"by hand")


async def test_another_holder_is_left_alone() -> None:
    it = await scene()
    it.by_hand(QUIET)
    it.report.emit(LeaseChanged(Holder("jane", "op", "disks", "", "")))
    assert await it.turn() is None
    assert it.host.world.disk[QUIET] == RegularFile(b"by hand")


async def test_an_operator_at_work_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one who has the node without the lease, because the maintenance is only planned."""
    it = await scene()
    it.by_hand(QUIET)
    monkeypatch.setattr(repair, "disruption_of", lambda _: Disruption(requester="jane", reason="disks", planned=True))
    assert await it.turn() is None
    assert it.host.world.disk[QUIET] == RegularFile(b"by hand")


async def test_a_fight_is_reported_and_gets_slower() -> None:
    it = await scene()
    clock, writes, waits = it.host.world, 0, []
    began = it.ports.clock.monotonic()
    while it.ports.clock.monotonic() < began + 6 * 3600:
        it.by_hand(QUIET)
        delay = await it.turn()
        writes += clock.disk[QUIET] == RegularFile(b"1")
        waits.append(delay)
        await asyncio.sleep(60)
    assert 0 < writes < 6 + 10, "about once an hour in the end"
    assert max(filter(None, waits)) <= LONGEST_PAUSE
    reason, message = it.problem()
    assert reason == "DriftContended"
    assert f"file:{QUIET}" in message


async def test_an_error_is_reported_and_retried() -> None:
    it = await scene()
    it.by_hand(QUIET)
    it.host.world.faults.append(Fault("install", Terminal("read-only", reason=Reason.READ_ONLY), times=1))
    delay = await it.turn()
    assert delay is not None
    assert "ReadOnly" in it.problem()[1]


def test_the_pace() -> None:
    pace = RepairPace()
    assert pace.due(["a", "b"], 0.0) == {"a", "b"}
    pace.tried(["a"], ["a"], 0.0)
    assert pace.due(["a", "b"], 1.0) == {"b"}
    assert pace.wait(["a"], 1.0) == FIRST_PAUSE - 1
    assert pace.wait([], 1.0) is None
    pace.tried(["a"], ["a"], FIRST_PAUSE)
    assert pace.wait(["a"], FIRST_PAUSE) == 2 * FIRST_PAUSE
    assert pace.contended(["a"], FIRST_PAUSE) == {}
    pace.tried(["a"], [], 200.0)
    assert pace.contended(["a"], 201.0) == {}, "that one failed"
    pace.tried(["a"], ["a"], 200.0)
    assert pace.contended(["a"], 201.0) == {"a": CONTENDED}
    assert pace.contended([], 201.0) == {}, "it is as it should be now"
    assert pace.contended(["a"], 1000.0) == {"a": CONTENDED}
    pace.contended([], 100000.0)
    assert pace.due(["a"], 100000.0) == {"a"}, "forgotten"


def test_the_pause_of_a_repair_that_fails_for_weeks() -> None:
    pace = RepairPace()
    for _ in range(2000):
        pace.tried(["a"], [], 0.0)
    assert pace.wait(["a"], 0.0) == LONGEST_PAUSE


async def test_the_static_pod_of_an_operator_is_left() -> None:
    path = "/etc/kubernetes/manifests/etcd-pod.yaml"
    first, second = (
        "apiVersion: v1\nkind: Pod\n"
        f"metadata: {{name: etcd, namespace: openshift-etcd, labels: {{revision: '{each}'}}}}\n"
        "spec: {containers: [{name: etcd, image: etcd}]}\n"
        for each in (7, 8)
    )
    host = Host(World())
    host.world.disk[path] = RegularFile(first.encode())
    watched = config("watched", {path: first, QUIET: "1"})
    host.want(watched)
    await host.settle()
    it = Scene(host, "repair")
    host.world.disk |= {path: RegularFile(second.encode()), QUIET: RegularFile(b"by hand")}
    for _ in range(2):
        found = await mismatches(it.ports, watched, watched=True)
        drift = [DriftedEntry(entry, why, it.ports.clock.now()) for entry, why in found.items()]
        it.report.emit(DriftChanged("watched", tuple(drift), ""))
        await it.repair()
    assert set(found) == {f"file:{path}"}
    assert host.world.disk[path] == RegularFile(second.encode())
    assert host.world.disk[QUIET] == RegularFile(b"1")
    assert it.report.status.problems == ()


@pytest.mark.finding(
    "units: drift of links", "A missing link of an enabled unit is drift, and is put back as other drift."
)
async def test_a_missing_link_is_put_back_and_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Entry("web.service", (DAEMON_RELOAD,))
    policy = replace(POLICY, units={**POLICY.units, "web.service": entry})
    it = await scene()
    monkeypatch.setattr(it.repair, "policy", lambda *_: _later(policy))
    it.host.world.unit_texts["web.service"] = b"[Install]\nWantedBy=multi-user.target\nAlias=w.service\n"
    it.host.world.links |= {"x.target.wants/web.service": "../web.service", "w.service": "elsewhere.service"}
    await it.turn()
    assert drift_of(it.report.status) == ()
    assert it.host.world.links == {
        "w.service": "/usr/lib/systemd/system/web.service",
        "x.target.wants/web.service": "../web.service",
    }


async def _later(policy: Policy) -> Policy:
    return policy
