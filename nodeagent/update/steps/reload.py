# SPDX-License-Identifier: Apache-2.0
"""Reload a unit, with proof that its program took the new configuration over."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nodeagent.core.plan.policy import reload
from nodeagent.core.plan.steps import ActStep, ReloadUnit, RestartUnit, StartUnit
from nodeagent.errors import Terminal
from nodeagent.reasons import Reason
from nodeagent.update.ports.events import Warned
from nodeagent.update.ports.host import UP
from nodeagent.update.steps.step import UnitWork, keys_of
from nodeagent.update.steps.unit_verdict import restarting


@dataclass(slots=True)
class ReloadWork(UnitWork[ReloadUnit]):
    """``began`` is the time before the reload."""

    began: str = ""

    async def due(self) -> ActStep:
        state = await self.state()
        # A unit that has begun to start, maybe with the previous files, takes no reload yet.
        begun = state.active == "activating" and not restarting(state)
        if begun:
            return RestartUnit(self.unit)
        if self.run.record.reverting or state.active != "inactive" or state.type != "oneshot":
            return self.step
        # The condition that kept the boot from starting it may be met by what this update wrote. One that is started
        # anyway comes before the restarts, as its reload would: they may need what it does.
        started = any(isinstance(step, StartUnit) and step.unit == self.unit for step in self.steps)
        return StartUnit(self.unit) if state.condition or started else self.step

    async def applies(self) -> str:
        state = await self.state()
        if absent := self.absent(state):
            return absent
        runs = state.active in UP
        return "" if runs else f"{self.unit} is {state.active}; it reads its configuration when it starts"

    async def before(self) -> None:
        await self.note_health()

    async def do(self) -> str:
        self.began = self.run.ports.clock.now()
        await self.run.ports.units.reload(self.unit, self.run.policy.action_timeout)
        return ""

    async def proof(self) -> None:
        """Raise ``Terminal`` (``ReloadRejected``) if the program kept its old configuration."""
        wanted = reload(self.unit)
        keys = [key for key in keys_of(self.run.update) if wanted in key.actions]
        if self.run.record.reverting:
            # A revert reloads the values from before the update.
            keys = [replace(key, before=key.after, after=key.before) for key in keys]
        problem = await self.run.ports.health.reload_problem(self.unit, self.began, keys)
        if problem is None:
            note = f"{self.unit} did not log whether it took the configuration over"
            self.run.narrate(Warned, note, "", self.run.update.progress(self.step))
        elif problem:
            raise Terminal(f"{self.unit}: {problem}", reason=Reason.RELOAD_REJECTED)
