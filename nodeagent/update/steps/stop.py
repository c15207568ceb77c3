# SPDX-License-Identifier: Apache-2.0
"""Stop a unit whose file leaves with the config, or that is disabled or masked. A revert starts it again if it ran.

A revert also stops what the update has started.
"""

from __future__ import annotations

from nodeagent.core.config.paths import unit_path
from nodeagent.core.config.unit_names import is_template
from nodeagent.core.plan.steps import ActStep, RemovePath, RestartUnit, RestoreUnit, StartUnit, StopUnit, step_id
from nodeagent.core.plan.unit_types import UnitStep, type_of
from nodeagent.update.ports.host import DOWN
from nodeagent.update.steps.step import UnitWork
from nodeagent.update.steps.units_before import one_up


class StopWork(UnitWork[StopUnit]):
    async def due(self) -> ActStep:
        record = self.run.record
        ran = record.units_before.states.get(self.unit, "failed") not in DOWN
        return RestartUnit(self.unit) if record.reverting and ran else self.step

    async def applies(self) -> str:
        state = await self.state()
        if UnitStep.STOP not in type_of(self.unit).leaves:
            return f"{self.unit} needs no unit file"
        if state.file and state.load != "masked" and not self._started():
            if not self._disabled(state.file):
                return f"{self.unit} has a unit file of this host"
            # A boot would start it, too.
            if other := await one_up(self.run.ports, (await self.run.ports.units.relations(self.unit)).wanted_by):
                return f"{self.unit} is wanted by {other}, which runs"
        # A template never runs itself, and its state says nothing about its instances.
        if state.active in DOWN and not is_template(self.unit):
            return f"{self.unit} does not run"
        return ""

    def _started(self) -> bool:
        """Return whether the update has started the unit, and its revert stops it."""
        return self.run.record.reverting and self.ident == step_id(StartUnit(self.unit))

    def _disabled(self, file: str) -> bool:
        if self.run.record.reverting:
            return False
        update = self.run.update
        if (entry := update.new.units.get(self.unit)) is not None:
            return entry.enabled is False
        # The entry leaves that enabled it, and no file of the unit.
        restored = RestoreUnit(self.unit) in update.writes and RemovePath(unit_path(self.unit)) not in update.writes
        return restored and file == "disabled"

    async def before(self) -> None:
        await self.guard_etcd()

    async def do(self) -> str:
        await self.run.ports.units.stop(self.unit, self.run.policy.action_timeout)
        return ""
