"""Compare the units that a config and the policy name with this host, before the lease.

``core.plan.unit_entries`` and ``core.plan.unit_abilities`` judge; here are the facts about the host. What goes through
all files of a config runs in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.unit_names import did_you_mean
from nodeagent.core.plan.change import ActionType, Plan, PolicySource
from nodeagent.core.plan.sides import NO_CONFIG
from nodeagent.core.plan.unit_abilities import job_problem, of_texts, with_texts
from nodeagent.core.plan.unit_entries import Judged, UnitOnHost, judge, mentioned
from nodeagent.core.plan.unit_origin import Brought
from nodeagent.core.update.ports.host import Units
from nodeagent.errors import Problem

# Warnings about units in one update. Operators may render more entries than an admin reads.
MAX_WARNINGS: Final = 20


_NO_SUCH_UNIT: Final = "no such unit on this host or in the config"


@dataclass(frozen=True, slots=True)
class UnitChecks:
    units: Units

    async def judge(
        self, old: MachineConfig, new: MachineConfig, *, other_os: bool = False, current: MachineConfig = NO_CONFIG
    ) -> Judged:
        """Judge the entries of both configs, with warnings that name the closest unit. Arguments as in
        ``unit_entries.judge``."""
        found = await self._judge(old, new, other_os=other_os, current=current)
        missing = await self._missing(found, new)
        return replace(found, warnings=(*found.warnings, *missing))

    async def missing(self, config: MachineConfig) -> tuple[Problem, ...]:
        """Return the entries of a config for units that exist nowhere."""
        return await self._missing(await self._judge(config, config, current=config), config)

    async def _judge(
        self, old: MachineConfig, new: MachineConfig, *, other_os: bool = False, current: MachineConfig
    ) -> Judged:
        units = await asyncio.to_thread(mentioned, old, new)
        facts = {unit: await self._facts(unit) for unit in sorted(units)}
        return await asyncio.to_thread(judge, old, new, facts, other_os=other_os, current=current)

    async def policy_problems(self, plan: Plan, old: MachineConfig, new: MachineConfig) -> tuple[Problem, ...]:
        """Return the units that the policy of the admin names, and that are neither on this host nor in the config, or
        reject the action. Built-in entries may name what a host lacks."""
        before, brought = await asyncio.to_thread(_brought, old), await asyncio.to_thread(_brought, new)
        found = {(unit, action): await self._problem(unit, action, before, brought) for unit, action in _named(plan)}
        # systemd reads all unit files for the list, so it is requested only for the hint of an error.
        known = {*brought.files, *(await self.units.files() if _NO_SUCH_UNIT in found.values() else ())}
        hints = {unit: did_you_mean(unit, known) for (unit, _), why in found.items() if why == _NO_SUCH_UNIT}
        problems = [(unit, why + hints.get(unit, "")) for (unit, _), why in sorted(found.items()) if why]
        return tuple(Problem(f"nodeDisruptionPolicy: {unit}", why) for unit, why in dict.fromkeys(problems))

    async def _problem(self, unit: str, action: ActionType, old: Brought, new: Brought) -> str:
        texts = new.texts_of(unit)
        if new.has(unit):
            return job_problem(of_texts(unit, texts), action)
        match (await self.units.state(unit)).load:
            case "not-found":
                # Which units a generator makes is known only after the daemon-reload. What is not there needs no stop.
                return "" if new.has_generated or action is ActionType.STOP else _NO_SUCH_UNIT
            # What leaves with this update is still in the answer of systemd, and nothing shows what is left then.
            case "loaded" if set(old.texts_of(unit)) <= set(texts):
                return job_problem(with_texts(await self.units.abilities(unit), texts), action)
            case _:
                return ""

    async def _facts(self, unit: str) -> UnitOnHost:
        state = await self.units.state(unit)
        return UnitOnHost(state.load, state.file, await self.units.abilities(unit))

    async def _missing(self, judged: Judged, new: MachineConfig) -> tuple[Problem, ...]:
        if not judged.missing:
            return ()
        # systemd reads all unit files for the list, so it is requested only for the hint of a warning.
        known = {*(await asyncio.to_thread(_brought, new)).files, *await self.units.files()}
        hints = {unit: did_you_mean(unit, known) for unit in set(judged.missing.values())}
        return tuple(_warnings(judged.missing, hints))


def _brought(config: MachineConfig) -> Brought:
    """Return what a config brings. The first use of its files computes them, so it comes here, for a thread."""
    brought = Brought(config)
    _ = brought.files
    return brought


def _named(plan: Plan) -> Iterator[tuple[str, ActionType]]:
    for planned in plan.changes:
        if planned.policy is PolicySource.USER:
            yield from ((each.unit, each.type) for each in planned.actions if each.unit)


def _warnings(missing: Mapping[str, str], hints: Mapping[str, str]) -> Iterator[Problem]:
    for number, (entry, unit) in enumerate(sorted(missing.items())):
        if number == MAX_WARNINGS:
            yield Problem("", f"{len(missing) - number} more entries are for units that exist nowhere")
            return
        yield Problem(entry, f"there is no unit {unit} on this host or in the config{hints[unit]}")
