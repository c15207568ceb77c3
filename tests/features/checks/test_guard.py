# SPDX-License-Identifier: Apache-2.0
"""Checks of the admin in an update: what a failure holds, what it reverts, and what it leaves alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from nodeagent.agent.plan_answer import plan_answer
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.errors import AgentError, Refused, ServiceUnavailable
from nodeagent.features.checks.decide import AdminCheck, CheckStage
from nodeagent.features.checks.guard import CheckGuard
from nodeagent.features.checks.reasons import CheckReason
from nodeagent.update.next.preflight import Preflight
from nodeagent.update.ports.events import PhaseEntered, UpdateWaiting, Warned
from nodeagent.update.run import Ports
from nodeagent.update.states import Phase
from tests.update.test_outcomes import outcomes
from tests.world import FakeUnit, Killed, Outage, World
from tests.world.run import Host, config, kinds, until

pytestmark = pytest.mark.looptime

A = config("a", {"/etc/app/x": "1", "/etc/quiet/q": "1"})
LIVE = config("live", {"/etc/app/x": "2", "/etc/quiet/q": "1"})
REBOOTS = config("reboots", {"/etc/app/x": "1", "/etc/quiet/q": "1", "/etc/unlisted": "2"})

Script = Callable[[], str]


@dataclass
class FakeChecks:
    """Implements ``guard.AdminChecks``. ``scripts`` by id return why a check fails; "?" marks a wanted one."""

    scripts: dict[str, Script] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    unsafe: str = ""

    async def found(self, stage: CheckStage) -> Sequence[AdminCheck]:
        if self.unsafe == stage:
            raise Refused("the program x is writable", reason=CheckReason.CHECK_UNSAFE)
        names = [name for name in self.scripts if name.startswith(f"{stage}/")]
        return [AdminCheck(stage, name.split("/")[1].strip("?"), "?" not in name, name) for name in names]

    async def run(self, check: AdminCheck, config: str) -> str:
        await asyncio.sleep(1)
        self.ran.append(f"{check.stage} for {config}")
        return self.scripts[check.path]()


@dataclass
class CheckedHost(Host):
    checks: FakeChecks = field(default_factory=FakeChecks)

    def ports(self) -> Ports:
        return replace(super().ports(), guards=[CheckGuard(self.checks)])

    def fail(self, name: str, times: int = 10**9, why: str = "disk is ill") -> None:
        left = [times]

        def script() -> str:
            left[0] -= 1
            return why if left[0] >= 0 else ""

        self.checks.scripts[name] = script

    def warnings(self) -> list[str]:
        return [event.message for event in self.world.events if isinstance(event, Warned)]


async def started() -> CheckedHost:
    units = {"app.service": FakeUnit(), "web.service": FakeUnit(), "trust.service": FakeUnit(type="oneshot")}
    host = CheckedHost(World(units=units))
    host.want(A)
    await host.settle()
    host.checks.ran.clear()
    host.world.done.clear()
    host.world.events.clear()
    return host


async def test_each_stage_runs_at_its_place() -> None:
    host = await started()
    for stage in CheckStage:
        host.checks.scripts[f"{stage}/c"] = lambda: ""
    host.want(LIVE)
    await host.settle()
    assert host.checks.ran == ["after-apply for live"]
    host.checks.ran.clear()
    host.want(REBOOTS)
    await host.settle()
    assert host.checks.ran == [f"{stage} for reboots" for stage in CheckStage]
    assert (host.phase, host.world.boot) == (Phase.IDLE, 2)


@pytest.mark.parametrize(("stage", "phase"), [("before-drain", Phase.LEASING), ("before-reboot", Phase.REBOOTING)])
async def test_a_failure_before_a_disruption_holds_the_update(stage: str, phase: Phase) -> None:
    host = await started()
    host.fail(f"{stage}/c")
    host.want(REBOOTS)
    task = asyncio.create_task(host.settle())
    await until(host, phase)
    await asyncio.sleep(600)
    assert (host.phase, host.world.boot) == (phase, 1)
    waits = [(event.reason, event.message) for event in host.world.events if isinstance(event, UpdateWaiting)]
    assert waits == [("CheckFailed", "disk is ill; the update continues when that is over")], "once"
    assert 5 < len(host.checks.ran) < 40, "it is repeated, with pauses"
    if phase is Phase.LEASING:
        assert host.world.holder is None, "nothing is held that others wait for"
    host.checks.scripts.clear()
    await task
    assert (host.phase, outcomes(host)[-1]) == (Phase.IDLE, ("reboots", "done", 0))
    assert not host.record.lasting.rejections, "it is no verdict on the config"


async def test_the_pauses_grow_also_if_the_output_differs_each_time() -> None:
    host = await started()
    count = iter(range(10**6))
    host.checks.scripts["before-drain/c"] = lambda: f"{next(count)} errors"
    host.want(REBOOTS)
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(1800)
    assert len(host.checks.ran) < 40, "a minute at most"
    waits = [event.message for event in host.world.events if isinstance(event, UpdateWaiting)]
    assert waits[-1].startswith(f"{len(host.checks.ran) - 1} errors"), "the status has the latest output"
    host.checks.scripts.clear()
    await task


async def test_another_config_ends_the_wait() -> None:
    host = await started()
    host.fail("before-drain/c")
    host.want(REBOOTS)
    task = asyncio.create_task(host.settle())
    await until(host, Phase.LEASING)
    await asyncio.sleep(60)
    host.want(LIVE)
    await task
    assert (host.phase, outcomes(host)[-1][:2]) == (Phase.IDLE, ("live", "done"))


async def test_an_unsafe_check_holds_the_update() -> None:
    host = await started()
    host.checks.unsafe = "before-drain"
    host.want(REBOOTS)
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(100)
    assert (host.phase, kinds(host, UpdateWaiting)) == (Phase.LEASING, ["CheckUnsafe"])
    host.checks.unsafe = ""
    await task
    assert host.phase is Phase.IDLE


@pytest.mark.parametrize("new", [LIVE, REBOOTS])
async def test_a_failure_after_the_config_took_effect_reverts_it(new: MachineConfig) -> None:
    host = await started()
    host.fail("after-apply/c")
    host.want(new)
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "Reverted")
    assert host.world.disk["/etc/app/x"].content == b"1"  # type: ignore[union-attr]
    (entry,) = [entry for entry in host.world.history if entry.to_name == new.name]
    assert (entry.outcome, entry.reason, entry.message) == ("reverted", "CheckFailed", "disk is ill")
    assert "disk is ill" in host.warnings(), "after the revert it is reported only"


async def test_a_fallback_reboot_may_cure_a_check() -> None:
    host = await started()
    host.checks.scripts["after-apply/c"] = lambda: "" if host.world.boot > 1 else "no route"
    host.want(LIVE)
    await host.settle()
    assert (host.phase, outcomes(host)[-1]) == (Phase.IDLE, ("live", "done-after-fallback", 0))


async def test_a_check_has_the_time_of_the_verification_to_pass() -> None:
    host = await started()
    host.fail("after-apply/c", times=3)
    host.want(LIVE)
    await host.settle()
    assert (outcomes(host)[-1], len(host.checks.ran)) == (("live", "done", 0), 4)
    messages = [event.message for event in host.world.events if isinstance(event, PhaseEntered)]
    assert len([message for message in messages if "; it is repeated until " in message]) == 1


class Away(Outage):
    """systemd does not answer while ``away`` is set."""

    away = False

    def hits(self, service: str, call: str) -> bool:
        return self.away


async def no_answer(service: str) -> AgentError:
    return ServiceUnavailable(f"{service} does not answer")


@pytest.mark.parametrize(
    ("stage", "phase", "boots"), [("before-reboot", Phase.REBOOTING, 1), ("after-apply", Phase.VERIFYING, 2)]
)
async def test_a_failure_without_systemd_is_no_verdict(stage: str, phase: Phase, boots: int) -> None:
    """systemd starts the checks, so they cannot run without it, for longer than the time for verification."""
    host = await started()
    outage = host.world.outage = Away(no_answer)

    def script() -> str:
        outage.away = True
        return "systemd-run cannot connect to the bus"

    host.checks.scripts[f"{stage}/c"] = script
    host.want(REBOOTS)
    task = asyncio.create_task(host.settle())
    await until(host, phase)
    await asyncio.sleep(3 * host.limits.verify_timeout)
    assert outage.away
    assert (host.phase, host.world.boot) == (phase, boots)
    host.checks.scripts.clear()
    outage.away = False
    await task
    assert (host.phase, outcomes(host)[-1][:2]) == (Phase.IDLE, ("reboots", "done"))


async def test_a_failure_after_the_boot_reverts_the_update() -> None:
    host = await started()
    host.fail("after-boot/c")
    host.want(REBOOTS)
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "Reverted")
    assert "/etc/unlisted" not in host.world.disk


async def test_a_wanted_check_is_reported_only() -> None:
    host = await started()
    for stage in CheckStage:
        host.fail(f"{stage}/c?", why=f"{stage} is unhappy")
    host.want(REBOOTS)
    await host.settle()
    assert (host.phase, host.world.history[-1].outcome) == (Phase.IDLE, "done")
    assert host.warnings() == [f"{stage} is unhappy" for stage in CheckStage]
    kept = host.world.history[-1].message
    assert kept == "; ".join(f"{stage} is unhappy" for stage in CheckStage), "the history has them"


async def test_a_fallback_reboot_that_a_check_forbids_becomes_a_revert() -> None:
    host = await started()
    host.fail("before-reboot/c")
    host.world.units["app.service"].fail_restarts = 1
    host.want(LIVE)
    await host.settle()
    assert (host.phase, host.record.reason, host.world.boot) == (Phase.DEGRADED, "Reverted", 1)


async def test_a_revert_waits_for_no_check() -> None:
    host = await started()
    host.checks.scripts["before-reboot/c"] = lambda: "" if host.world.boot == 1 else "raid is rebuilding"
    host.fail("after-boot/c")
    host.want(REBOOTS)
    await host.settle()
    assert (host.phase, host.record.reason, host.world.boot) == (Phase.DEGRADED, "Reverted", 3)
    assert "raid is rebuilding" in host.warnings()


@pytest.mark.parametrize("stage", list(CheckStage))
async def test_a_check_that_a_kill_interrupts_runs_again(stage: CheckStage) -> None:
    host = await started()
    lives = []

    def script() -> str:
        lives.append(stage)
        if len(lives) == 1:
            raise Killed
        return ""

    host.checks.scripts[f"{stage}/c"] = script
    host.want(REBOOTS)
    await host.settle()
    assert (host.phase, outcomes(host)[-1][:2]) == (Phase.IDLE, ("reboots", "done"))
    assert len(lives) == 2


async def test_a_plan_lists_the_checks() -> None:
    host = await started()
    host.checks.scripts = {"before-drain/a": str, "before-drain/b?": str, "after-apply/c": str}
    host.checks.unsafe = "after-boot"

    async def notes(new: MachineConfig) -> list[str]:
        ports = host.ports()
        preflight = Preflight(ports, host.limits, (), host._policy, host.on_drift, host._view)
        old, desired = [await host._load(host.add(each)) for each in (A, new)]
        update = await preflight.prepare(desired, [old], dirty=False, first=False)
        found: list[str] = (await plan_answer(ports, update, diff=False, private=False))["notes"]
        return found

    assert await notes(LIVE) == ["checks after-apply: c"]
    assert await notes(REBOOTS) == [
        "checks before-drain: a, b (wanted)",
        "checks after-boot: the program x is writable",
        "checks after-apply: c",
    ]
    assert await notes(A) == []
