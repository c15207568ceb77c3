# SPDX-License-Identifier: Apache-2.0
"""Stop a unit and remove files of its state that do not fit its new configuration."""

from __future__ import annotations

from nodeagent.core.plan.steps import ClearState
from nodeagent.update.steps.step import UnitWork


class ClearStateWork(UnitWork[ClearState]):
    async def applies(self) -> str:
        state = await self.state()
        return self.absent(state) or (f"{self.unit} is masked" if state.load == "masked" else "")

    async def before(self) -> None:
        await self.guard_etcd()
        await self.note_health()

    async def do(self) -> str:
        # A unit that runs would write its state again, so it is stopped first.
        await self.run.ports.units.stop(self.unit, self.run.policy.action_timeout)
        for path in self.step.paths:
            await self.run.ports.files.remove(path, ())
        return ""
