# SPDX-License-Identifier: Apache-2.0
"""A fleet without a cluster: its settings, its check of the installation, and two hosts with one slot."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeagent.agent import compose
from nodeagent.agent.report.report import Report
from nodeagent.errors import InvalidInput, Terminal
from nodeagent.features.fleetlock.client import FleetLock
from nodeagent.features.fleetlock.selfcheck import reach_fleetlock
from nodeagent.features.fleetlock.settings import FleetLockSettings
from nodeagent.host.clock import SystemClock
from nodeagent.host.store.store import SqliteStore
from nodeagent.report.status import Status
from nodeagent.settings.consistency import check_consistency, fixed_change
from nodeagent.settings.load import Loaded, load
from nodeagent.settings.schema import Settings
from nodeagent.update.ports.events import UpdateWaiting
from nodeagent.update.run import Ports
from nodeagent.update.stages.coordination import Coordination
from nodeagent.update.states import Phase
from tests.features.fleetlock.test_client import FleetServer, serving
from tests.kube.server import CUT, Answer
from tests.kube.server import serving as serving_any
from tests.world import FakeLease, FakeUnit, World
from tests.world.run import LIMITS, Host, config

BAD = {
    "cluster": ("cluster: {kubeconfig: /k}\nslots: {fleetlock: 'https://f'}\n", "hosts without a cluster"),
    "ca": ("slots: {fleetlock_ca: /ca}\n", "needs slots.fleetlock"),
    "ca, http": ("slots: {fleetlock: 'http://f', fleetlock_ca: /ca}\n", "with https"),
    "group": ("slots: {fleetlock_group: g}\n", "needs slots.fleetlock"),
}


def loaded(directory: Path, text: str) -> Loaded:
    (directory / "50-x.yaml").write_text(text)
    return load([directory])


@pytest.mark.parametrize("name", BAD)
def test_settings_that_contradict_each_other(tmp_path: Path, name: str) -> None:
    text, words = BAD[name]
    found = loaded(tmp_path, text)
    with pytest.raises(InvalidInput) as raised:
        check_consistency(found.settings, found.origins)
    problems = [problem for problem in raised.value.problems if words in problem.message]
    assert problems
    assert all(problem.path.startswith(f"{tmp_path}/50-x.yaml:") for problem in problems)


def test_settings_that_do_not(tmp_path: Path) -> None:
    found = loaded(tmp_path, "slots: {fleetlock: 'https://f', fleetlock_ca: /ca, fleetlock_group: g}\n")
    check_consistency(found.settings, found.origins)
    assert found.settings.of(FleetLockSettings) == FleetLockSettings("https://f", "g", "/ca")


def test_another_server_requires_a_restart() -> None:
    assert fixed_change(Settings(), Settings(parts=(FleetLockSettings("https://f"),))) == "slots"


def test_an_address_has_no_user(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as raised:
        loaded(tmp_path, "slots: {fleetlock: 'https://me@lock'}\n")
    (problem,) = raised.value.problems
    assert (problem.path, problem.message) == (
        f"{tmp_path}/50-x.yaml:1",
        'slots.fleetlock must be an address as in https://host/path, or ""',
    )


def coordination(tmp_path: Path) -> Coordination:
    store, clock = SqliteStore(tmp_path / "s/state.db"), SystemClock()
    settings = Settings(parts=(FleetLockSettings("https://lock.example"),))
    return compose.coordinate(settings, store, clock, None, Report(Status()))[0]


def test_a_fleet_without_a_cluster_has_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compose, "MACHINE_ID", tmp_path / "machine-id")
    (tmp_path / "machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    made = coordination(tmp_path)
    assert (made.lease.backend, isinstance(made.slot, FleetLock)) == ("local", True)
    (tmp_path / "machine-id").write_text("uninitialized")
    with pytest.raises(Terminal) as caught:
        coordination(tmp_path)
    assert caught.value.reason == "NoMachineId"


@pytest.mark.parametrize(
    ("answer", "well"), [(Answer(401), True), (Answer(404), True), (Answer(503), False), (CUT, False)]
)
async def test_the_selfcheck_takes_no_slot(answer: Any, well: bool) -> None:
    async with serving_any(answer) as server:
        found = await reach_fleetlock(f"http://127.0.0.1:{server.port}/", "")
    assert (found.error == "") is well
    assert {request.method for request in server.requests} == {"GET"}


async def test_a_missing_authority(tmp_path: Path) -> None:
    found = await reach_fleetlock("https://127.0.0.1:1/", str(tmp_path / "missing.pem"))
    assert found.error
    assert "fleetlock_ca" in found.remedy


class OfFleet(Host):
    """A host without a cluster whose slots are a server's."""

    def __init__(self, server: FleetServer, machine: str) -> None:
        super().__init__(World(units={"app.service": FakeUnit()}), replace(LIMITS, settle=0.01, lease_retry=0.05))
        self.slots = FleetLock(server.url, machine)

    def ports(self) -> Ports:
        return replace(super().ports(), coordination=Coordination(FakeLease(self.world), slot=self.slots))


async def test_a_fleet_of_two_with_one_slot() -> None:
    async with serving(FleetServer(full=423)) as server:
        first, second = OfFleet(server, "1" * 32), OfFleet(server, "2" * 32)
        first.world.units["app.service"].fail_restarts = 1
        first.limits = replace(first.limits, may_reboot=False, revert=False)
        first.want(config("a", {"/etc/app/x": "1"}))
        await first.settle()
        assert first.phase is Phase.DEGRADED
        assert server.held == {"default": {"1" * 32}}, "a host that failed keeps its slot"
        second.want(config("a", {"/etc/app/x": "1"}))
        task = asyncio.create_task(second.settle())
        while not (waiting := [e for e in second.world.events if isinstance(e, UpdateWaiting)]):
            await asyncio.sleep(0.01)
        assert (waiting[0].reason, second.world.holder) == ("SlotHeld", None)
        assert waiting[0].message.endswith("; the update continues when that is over")
        first.want(config("b", {"/etc/app/x": "2"}))
        await first.settle()
        await task
        assert {first.phase, second.phase} == {Phase.IDLE}
        assert server.held == {"default": set()}
