# SPDX-License-Identifier: Apache-2.0
"""Alerts in an update: what they hold, and what is reported."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from nodeagent.agent.plan_answer import plan_answer
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.errors import AgentError, Refused, Unreachable
from nodeagent.features.alerts.guard import AlertGuard
from nodeagent.features.alerts.reasons import AlertReason
from nodeagent.update.next.preflight import Preflight
from nodeagent.update.ports.events import UpdateWaiting, Warned
from nodeagent.update.run import Ports
from nodeagent.update.states import Phase
from tests.update.test_outcomes import outcomes
from tests.world import FakeUnit, World
from tests.world.run import Host, config, kinds

pytestmark = pytest.mark.looptime

A = config("a", {"/etc/app/x": "1", "/etc/quiet/q": "1"})
LIVE = config("live", {"/etc/app/x": "2", "/etc/quiet/q": "1"})
REBOOTS = config("reboots", {"/etc/app/x": "1", "/etc/quiet/q": "1", "/etc/unlisted": "2"})


@dataclass
class FakeAlerts:
    """Implements ``guard.Alerts``."""

    fault: AgentError | None = None
    unknown: str = ""
    asked: int = 0
    query: str = "ALERTS"

    async def check(self) -> str:
        self.asked += 1
        if self.fault is not None:
            raise self.fault
        return self.unknown


@dataclass
class AlertedHost(Host):
    alerts: FakeAlerts = field(default_factory=FakeAlerts)

    def ports(self) -> Ports:
        return replace(super().ports(), guards=[AlertGuard(self.alerts)])

    def warnings(self) -> list[str]:
        return [event.message for event in self.world.events if isinstance(event, Warned)]


async def started() -> AlertedHost:
    units = {"app.service": FakeUnit(), "web.service": FakeUnit(), "trust.service": FakeUnit(type="oneshot")}
    host = AlertedHost(World(units=units))
    host.want(A)
    await host.settle()
    host.world.done.clear()
    host.world.events.clear()
    return host


async def test_a_plan_names_the_query() -> None:
    host = await started()

    async def notes(new: MachineConfig) -> list[str]:
        ports = host.ports()
        preflight = Preflight(ports, host.limits, (), host._policy, host.on_drift, host._view)
        old, desired = [await host._load(host.add(each)) for each in (A, new)]
        update = await preflight.prepare(desired, [old], dirty=False, first=False)
        found: list[str] = (await plan_answer(ports, update, diff=False, private=False))["notes"]
        return found

    note = "alerts: the update begins when this returns nothing: ALERTS"
    assert note in await notes(REBOOTS)
    assert note not in await notes(LIVE)


@pytest.mark.parametrize(
    "fault",
    [
        Refused("alerts: 1 firing: Down", reason=AlertReason.ALERTS_FIRING),
        Refused("no vector", reason=AlertReason.ALERTS_REJECTED),
        Unreachable("no answer", reason=AlertReason.ALERTS_UNREACHABLE),
    ],
)
async def test_alerts_hold_an_update_that_stops_the_node(fault: AgentError) -> None:
    host = await started()
    host.alerts.fault = fault
    host.want(REBOOTS)
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(3600)
    assert (host.phase, host.world.holder) == (Phase.LEASING, None)
    assert kinds(host, UpdateWaiting) == [fault.reason]
    assert 40 < host.alerts.asked < 120, "once a minute"
    host.alerts.fault = None
    await task
    assert (host.phase, outcomes(host)[-1][:2]) == (Phase.IDLE, ("reboots", "done"))


async def test_alerts_hold_no_update_that_leaves_the_node_up() -> None:
    host = await started()
    host.alerts.fault = Refused("alerts: 1 firing: Down", reason=AlertReason.ALERTS_FIRING)
    host.want(LIVE)
    await host.settle()
    assert (host.phase, host.alerts.asked) == (Phase.IDLE, 0)


async def test_a_server_that_no_update_waits_for_is_reported() -> None:
    host = await started()
    host.alerts.unknown = "no answer in 15 s"
    host.want(REBOOTS)
    await host.settle()
    assert host.warnings() == ["continuing: no answer in 15 s"]
    assert host.world.history[-1].message == "continuing: no answer in 15 s"
