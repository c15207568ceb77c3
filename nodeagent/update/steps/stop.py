# SPDX-License-Identifier: Apache-2.0
"""Stop a unit whose file leaves with the config. A revert starts it again if it ran."""

from __future__ import annotations

from nodeagent.core.config.unit_names import is_template
from nodeagent.core.plan.steps import ActStep, RestartUnit, StopUnit
from nodeagent.core.plan.unit_types import UnitStep, type_of
from nodeagent.update.ports.host import DOWN
from nodeagent.update.steps.step import UnitWork


class StopWork(UnitWork[StopUnit]):
    async def due(self) -> ActStep:
        record = self.run.record
        ran = record.units_before.states.get(self.unit, "failed") not in DOWN
        return RestartUnit(self.unit) if record.reverting and ran else self.step

    async def applies(self) -> str:
        state = await self.state()
        if UnitStep.STOP not in type_of(self.unit).leaves:
            return f"{self.unit} needs no unit file"
        if state.file and state.load != "masked":
            return f"{self.unit} has a unit file of this host"
        # A template never runs itself, and its state says nothing about its instances.
        if state.active in DOWN and not is_template(self.unit):
            return f"{self.unit} does not run"
        return ""

    async def before(self) -> None:
        await self.guard_etcd()

    async def do(self) -> str:
        await self.run.ports.units.stop(self.unit, self.run.policy.action_timeout)
        return ""
