# SPDX-License-Identifier: Apache-2.0
"""Compare the units that a config and the policy name with this host, before the lease.

``core.plan.unit_entries`` and ``core.plan.unit_abilities`` judge; here are the facts about the host. What goes through
all files of a config runs in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from nodeagent.core.config.file_tree import FileTreeEntry, RegularFile
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.unit_names import did_you_mean, template_of
from nodeagent.core.plan.change import CHOSEN, Action, ActionType, Plan, PolicySource
from nodeagent.core.plan.enablement.unit_files import overlaid, source_of
from nodeagent.core.plan.sides import NO_CONFIG
from nodeagent.core.plan.unit_abilities import job_problem, of_texts, with_texts
from nodeagent.core.plan.unit_entries import Judged, UnitOnHost, judge, mentioned
from nodeagent.core.plan.unit_origin import Brought
from nodeagent.core.plan.unit_relations import triggered
from nodeagent.core.plan.unit_types import restarts_with_triggered
from nodeagent.errors import Problem
from nodeagent.update.ports.host import UP, UnitFiles, Units

# Warnings about units in one update. Operators may render more entries than an admin reads.
MAX_WARNINGS: Final = 20

Files = Mapping[str, FileTreeEntry]
_JOBS: Final = (ActionType.RELOAD, ActionType.RESTART)

_NO_SUCH_UNIT: Final = "no such unit on this host or in the config"


@dataclass(frozen=True, slots=True)
class UnitChecks:
    units: Units

    async def judge(
        self,
        old: MachineConfig,
        new: MachineConfig,
        *,
        other_os: bool = False,
        current: MachineConfig = NO_CONFIG,
        other_files: Collection[str] = (),
    ) -> Judged:
        """Judge the entries of both configs, with warnings that name the closest unit. Arguments as in
        ``unit_entries.judge``."""
        units = await asyncio.to_thread(mentioned, old, new)
        facts = {unit: await self._facts(unit) for unit in sorted(units)}
        judged = partial(judge, other_os=other_os, current=current, other_files=other_files)
        judged_units = await asyncio.to_thread(judged, old, new, facts)
        missing = await self._missing(judged_units, new)
        return replace(judged_units, warnings=(*judged_units.warnings, *missing))

    async def missing(self, config: MachineConfig) -> tuple[Problem, ...]:
        """Return the entries of a config for units that exist nowhere."""
        units = await asyncio.to_thread(mentioned, config)
        facts = {unit: await self._facts(unit) for unit in sorted(units)}
        return await self._missing(await asyncio.to_thread(judge, config, config, facts, current=config), config)

    async def policy_problems(
        self, plan: Plan, old: MachineConfig, new: MachineConfig, unit_files: UnitFiles, restored: Files
    ) -> tuple[Problem, ...]:
        """Return the units that the policy of the admin, or the recommended one, names, and that are neither on this
        host nor in the config, or reject the action. Built-in entries may name what a host lacks. ``restored`` is what
        comes back at paths that leave."""
        named = {*_named(plan, CHOSEN)}
        problems_by_job = await self._problems(named, old, new, unit_files, restored)
        # systemd reads all unit files for the list, so it is requested only for the hint of an error.
        some = _NO_SUCH_UNIT in problems_by_job.values()
        units = {*(await asyncio.to_thread(_brought, new)).files, *await self.units.files()} if some else set()
        hints = {
            unit: did_you_mean(unit, units)
            for (unit, _), problem in problems_by_job.items()
            if problem == _NO_SUCH_UNIT
        }
        problems = [
            (unit, problem + hints.get(unit, "")) for (unit, _), problem in sorted(problems_by_job.items()) if problem
        ]
        return tuple(Problem(f"nodeDisruptionPolicy: {unit}", problem) for unit, problem in dict.fromkeys(problems))

    async def rejected(
        self, plan: Plan, old: MachineConfig, new: MachineConfig, unit_files: UnitFiles, restored: Files
    ) -> frozenset[Action]:
        """Return the reloads and restarts of built-in entries that systemd would reject. Arguments as in
        ``policy_problems``."""
        units = {unit for unit, action in _named(plan, {PolicySource.DEFAULT}) if action in _JOBS}
        # What does not run is not reloaded, and need not start.
        up = [unit for unit in sorted(units) if (await self.units.state(unit)).active in UP]
        jobs = {(unit, action) for unit in up for action in _JOBS}
        problems = await self._problems(jobs, old, new, unit_files, restored)
        return frozenset(
            Action(action, unit) for (unit, action), problem in problems.items() if problem not in ("", _NO_SUCH_UNIT)
        )

    async def _problems(
        self,
        named: Collection[tuple[str, ActionType]],
        old: MachineConfig,
        new: MachineConfig,
        unit_files: UnitFiles,
        restored: Files,
    ) -> dict[tuple[str, ActionType], str]:
        """Return why systemd would reject these actions, "" for those that it accepts."""
        if not named:
            return {}
        before, brought = await asyncio.to_thread(_brought, old), await asyncio.to_thread(_brought, new)
        changes: dict[str, FileTreeEntry | None] = {path: restored.get(path) for path in before.texts}
        changes |= {path: RegularFile(text.encode()) for path, text in brought.texts.items()}
        files = (await unit_files.facts({unit for unit, _ in named}, changes)).files
        after = overlaid(files, changes)
        return {
            (unit, action): await self._problem(unit, action, before, brought, after)
            or (await self._held_problem(unit, brought) if action is ActionType.RESTART else "")
            for unit, action in sorted(named)
        }

    async def _held_problem(self, unit: str, new: Brought) -> str:
        """Return why a unit that starts others on demand cannot be restarted: they run, and cannot be stopped."""
        if not restarts_with_triggered(unit):
            return ""
        for other in sorted(triggered(unit, await self.units.relations(unit))):
            if (await self.units.state(other)).active not in UP:
                continue
            abilities = with_texts(await self.units.abilities(other), new.texts_of(other))
            if not (abilities.can_start and abilities.can_stop):
                return f"it cannot be restarted while {other} runs, which rejects manual jobs; use Reboot"
        return ""

    async def _problem(self, unit: str, action: ActionType, old: Brought, new: Brought, after: Files) -> str:
        texts, source = new.texts_of(unit), source_of(unit, after)
        if new.has(unit):
            return job_problem(of_texts(unit, texts if source is None else source.texts), action)
        match (await self.units.state(unit)).load:
            case "not-found":
                # Which units a generator makes is known only after the daemon-reload. What is not there needs no stop.
                return "" if new.has_generated or action is ActionType.STOP else _NO_SUCH_UNIT
            case "loaded" if set(old.texts_of(unit)) <= set(texts):
                return job_problem(with_texts(await self.units.abilities(unit), texts), action)
            # What leaves with this update is still in the answer of systemd.
            case "loaded" if source is not None:
                return job_problem(of_texts(unit, source.texts), action)
            case _:
                return ""

    async def _facts(self, unit: str) -> UnitOnHost:
        state = await self.units.state(unit)
        return UnitOnHost(state.load, state.file, await self.units.abilities(unit))

    async def _missing(self, judged: Judged, new: MachineConfig) -> tuple[Problem, ...]:
        if not judged.missing:
            return ()
        # systemd reads all unit files for the list, so it is requested only for the hint of a warning.
        units = {*(await asyncio.to_thread(_brought, new)).files, *await self.units.files()}
        # A unit that leaves is still among them.
        hints = {unit: did_you_mean(unit, units - {unit, template_of(unit)}) for unit in set(judged.missing.values())}
        return tuple(missing_warnings(judged.missing, hints))


def _brought(config: MachineConfig) -> Brought:
    """Return what a config brings. The first use of its files computes them, so it comes here, for a thread."""
    brought = Brought(config)
    _ = brought.files
    return brought


def _named(plan: Plan, sources: Collection[PolicySource]) -> Iterator[tuple[str, ActionType]]:
    for planned in plan.changes:
        if planned.policy in sources:
            yield from ((action.unit, action.type) for action in planned.actions if action.unit)


def missing_warnings(
    missing: Mapping[str, str], hints: Mapping[str, str], places: str = "on this host or in the config"
) -> Iterator[Problem]:
    """Yield a warning for each entry or path whose unit is missing in all these places."""
    for number, (entry, unit) in enumerate(sorted(missing.items())):
        if number == MAX_WARNINGS:
            yield Problem("", f"{len(missing) - number} more entries are for units that exist nowhere")
            return
        yield Problem(entry, f"there is no unit {unit} {places}{hints.get(unit, '')}")
