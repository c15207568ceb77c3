# SPDX-License-Identifier: Apache-2.0
"""State of a unit that does not fit its new configuration, and failures that no reboot mends."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from nodeagent import domains
from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.change import Change, KeyChange
from nodeagent.core.plan.domain import Domain, UnitFailure
from nodeagent.core.plan.policy import REBOOT, Entry, Policy, Verdict, clear_state, restart
from nodeagent.core.plan.sides import Sides
from nodeagent.reasons import Reason
from nodeagent.update.ports.system import Inhibitor
from nodeagent.update.states import Phase
from tests.world import FakeUnit, Fault, World, kill_points
from tests.world.run import Host, config, until
from tests.world.units import JobFailed

pytestmark = pytest.mark.looptime

STATE = "/var/lib/app/state"
ACTIONS = (clear_state("app.service", STATE), restart("app.service"))


def by_key(change: Change, _sides: Sides) -> Verdict:
    return Verdict(ACTIONS, "policy", (KeyChange(change.key, "policy", '"none"', '"static"', ACTIONS),))


POLICY = Policy(
    files={
        "/etc/app": Entry("/etc/app", rule=by_key, summary="by key"),
        "/etc/kernel": Entry("/etc/kernel", (REBOOT,)),
    }
)


class ClearingHost(Host):
    async def _policy(self, *_: MachineConfig) -> Policy:
        return POLICY


class Picky(FakeUnit):
    """Does not start while there is state of the old configuration, which it wrote when it started with that."""

    world: World

    @property
    def bad_until_boot(self) -> int:
        return 99 if STATE in self.world.disk else 0

    @bad_until_boot.setter
    def bad_until_boot(self, value: int) -> None: ...


async def at_a() -> ClearingHost:
    host = ClearingHost(World(units={"app.service": FakeUnit()}))
    host.want(config("a", {"/etc/app/x": "1", "/etc/kernel/x": "1"}))
    await host.settle()
    unit = Picky()
    unit.world, unit.file = host.world, "enabled"
    host.world.units["app.service"] = unit
    host.world.disk[STATE] = RegularFile(b"old")
    host.world.done.clear()
    host.world.calls = 0
    return host


B = config("b", {"/etc/app/x": "2", "/etc/kernel/x": "1"})
REBOOTING = config("b", {"/etc/app/x": "2", "/etc/kernel/x": "2"})


async def test_the_unit_is_stopped_before_its_state_is_removed_and_started_after_it() -> None:
    host = await at_a()
    host.want(B)
    await host.settle()
    assert host.actions() == ["stop app.service", "restart app.service"]
    assert (host.phase, STATE in host.world.disk) == (Phase.IDLE, False)
    assert host.world.history[-1].outcome == "done"


async def test_a_reboot_starts_it_without_its_state() -> None:
    host = await at_a()
    host.want(REBOOTING)
    await host.settle()
    assert host.actions() == ["stop app.service", "reboot"]
    assert (host.phase, STATE in host.world.disk) == (Phase.IDLE, False)


def block(host: ClearingHost) -> None:
    host.world.blockers = [Inhibitor("backup", "copying", "tar (7)")]
    host.want(REBOOTING)


async def test_the_unit_runs_until_no_inhibitor_blocks_the_reboot() -> None:
    host = await at_a()
    block(host)
    task = asyncio.create_task(host.settle())
    await until(host, Phase.REBOOTING)
    await asyncio.sleep(60)
    assert host.world.units["app.service"].active == "active"
    host.world.blockers = []
    await task
    assert host.actions() == ["stop app.service", "reboot"]
    assert (host.phase, STATE in host.world.disk) == (Phase.IDLE, False)


async def test_the_state_is_removed_after_a_reboot_by_an_admin() -> None:
    host = await at_a()
    block(host)
    task = asyncio.create_task(host.settle())
    await until(host, Phase.REBOOTING)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    host.world.shut_down()
    await host.settle()
    assert host.actions() == ["stop app.service", "restart app.service"]
    assert (host.phase, STATE in host.world.disk) == (Phase.IDLE, False)


async def test_the_reboot_ends_a_unit_that_does_not_stop() -> None:
    host = await at_a()
    host.world.faults.append(Fault("stop unit", JobFailed("app.service is late", reason=Reason.JOB_TIMEOUT)))
    host.want(REBOOTING)
    await host.settle()
    assert host.actions() == ["reboot", "stop app.service", "restart app.service"]
    assert (host.phase, STATE in host.world.disk) == (Phase.IDLE, False)


@pytest.mark.long
@pytest.mark.parametrize("new", [B, REBOOTING], ids=["restart", "reboot"])
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])
async def test_killed_at_every_point(new: MachineConfig, power: bool) -> None:
    host = await at_a()
    host.want(new)
    await host.settle()
    for fuse in kill_points(host.world.calls, case=power):
        host = await at_a()
        host.want(new)
        await host.kill_at(fuse, power=power)
        await host.settle()
        app = host.world.units["app.service"]
        assert (host.phase, STATE in host.world.disk, app.active) == (Phase.IDLE, False, "active"), f"fuse {fuse}"


@pytest.mark.parametrize("new", [B, REBOOTING], ids=["restart", "reboot"])
async def test_a_revert_removes_the_state_of_the_new_configuration(new: MachineConfig) -> None:
    host = await at_a()
    host.limits = replace(host.limits, may_reboot=new is REBOOTING)

    class Dies(Picky):
        """Writes its state at each start, and dies with the new configuration."""

        @property
        def bad_until_boot(self) -> int:
            node = self.world.disk.get("/etc/app/x")
            return 99 if isinstance(node, RegularFile) and node.content == b"2" else super().bad_until_boot

        @bad_until_boot.setter
        def bad_until_boot(self, value: int) -> None: ...

    unit = Dies()
    unit.world, unit.file = host.world, "enabled"
    host.world.units["app.service"] = unit
    host.want(new)
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "Reverted")
    assert (unit.active, STATE in host.world.disk) == ("active", False)


# Failures that no reboot mends


class Knowing(Domain):
    def curable(self, failure: UnitFailure) -> bool:
        return not (failure.unit == "app.service" and failure.keys)


@pytest.mark.parametrize("unit", [FakeUnit(fail_restarts=1), FakeUnit(dies_after=1)], ids=["acting", "verifying"])
@pytest.mark.parametrize("knows", [True, False])
async def test_a_failure_that_no_reboot_mends_is_reverted_at_once(
    unit: FakeUnit, knows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if knows:
        monkeypatch.setattr(domains, "DOMAINS", (*domains.DOMAINS, Knowing("app", "app")))
    host = await at_a()
    host.world.units["app.service"] = FakeUnit(fail_restarts=unit.fail_restarts, dies_after=unit.dies_after)
    host.want(B)
    await host.settle()
    assert ("reboot" in host.actions()) is not knows
    assert (host.record.lasting.failed_digest == host.wanted) is knows
