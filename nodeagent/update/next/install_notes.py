# SPDX-License-Identifier: Apache-2.0
"""What units of a config do not do because another unit is missing, or takes their name: warnings before the lease.

systemd enables such a unit without an error, or with a line that only the caller of systemctl would read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from typing import Final

from nodeagent.core.config.file_tree import FileTreeEntry, expand
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.unit_names import did_you_mean, template_of, unit_name_problem
from nodeagent.core.plan.enablement.install import installs, taken_aliases
from nodeagent.core.plan.enablement.unit_files import EnablementFacts, overlaid
from nodeagent.core.plan.steps import EnableUnit, RemovePath
from nodeagent.core.plan.unit_changes import changed_unit
from nodeagent.core.plan.unit_origin import Brought
from nodeagent.core.plan.unit_relations import started_on_demand
from nodeagent.update.next.unit_checks import MAX_WARNINGS
from nodeagent.update.run import Ports, Update
from nodeagent.update.steps.originals import has_other_file

NOWHERE: Final = "exists neither on this host nor in the config"


async def notes_on_install(ports: Ports, update: Update) -> list[str]:
    """Return the warnings for the units that the update changes or enables."""
    units = sorted({step.unit for step in update.writes if isinstance(step, EnableUnit)})
    notes: list[str] = []
    if units:
        changes: dict[str, FileTreeEntry | None] = {
            step.path: None for step in update.writes if isinstance(step, RemovePath)
        }
        tree = await asyncio.to_thread(expand, update.new)
        changes |= {path: node for path, node in tree.items() if path.startswith(f"{UNIT_DIR}/")}
        facts = await ports.unit_files.facts(units, changes)
        facts = replace(facts, files=overlaid(facts.files, changes))
        notes += _without_effect(units, facts)
        if update.target is None:
            notes += [note async for note in _missing(ports, update, units, facts)]
    if update.target is None:
        notes += [note async for note in _not_started(ports, update)]
    more = [f"{len(notes) - MAX_WARNINGS} more units are without effect"] if len(notes) > MAX_WARNINGS else []
    return [f"warning: {note}" for note in (*notes[:MAX_WARNINGS], *more)]


async def _not_started(ports: Ports, update: Update) -> AsyncIterator[str]:
    """Yield the timers, paths and sockets whose service is missing: systemd refuses to start them."""
    changed = {changed_unit(planned.change) for planned in update.plan.changes} - {""}
    if not changed:
        return
    brought = Brought(update.new)
    old = Brought(update.basis.config) if update.basis is not None else brought
    for unit in sorted(await asyncio.to_thread(lambda: brought.files)):
        other = started_on_demand(unit, brought.texts_of(unit))
        if unit_name_problem(other) is not None or not {unit, other, template_of(other)} & changed:
            continue
        leaves = await _leaves(ports, old, brought, other)
        if leaves or not await _exists(ports, brought, other):
            yield f"unit:{unit} starts {other}, which {NOWHERE}, so systemd does not start it"


async def _leaves(ports: Ports, old: Brought, brought: Brought, unit: str) -> bool:
    """Return whether the file of a unit leaves with the update, and the host has no other one."""
    gone = "" if brought.has(unit) else old.file_of(unit)
    return gone != "" and not await has_other_file(ports, gone)


def _without_effect(units: list[str], facts: EnablementFacts) -> Iterator[str]:
    for unit in units:
        taken = taken_aliases(unit, facts)
        for alias, owner in sorted(taken.items()):
            yield f"unit:{unit} Alias={alias} has no effect: {UNIT_DIR}/{alias} is {owner}"
        install = next(iter(installs(unit, facts)), None)
        if install is not None and not (install.links or install.also or taken):
            yield f"unit:{unit} has nothing in [Install], so it is not enabled: it starts if another unit starts it"


async def _missing(ports: Ports, update: Update, units: list[str], facts: EnablementFacts) -> AsyncIterator[str]:
    """Yield the units that are named as those that start another one, and that do not exist."""
    brought = Brought(update.new)
    exists: dict[str, bool] = {}
    # systemd reads all unit files for the list, so it is requested once, and only for the hint of a warning.
    listed: set[str] = set()
    for unit in units:
        for wanting in _wanting(next((install.links for install in installs(unit, facts)), {})):
            if wanting not in exists:
                exists[wanting] = await _exists(ports, brought, wanting)
            if not exists[wanting]:
                listed = listed or {*brought.files, *await ports.units.files()}
                yield f"unit:{unit} is started by {wanting}, which {NOWHERE}{did_you_mean(wanting, listed)}"


def _wanting(links: Mapping[str, str]) -> list[str]:
    directories = {path.partition("/")[0] for path in links if "/" in path}
    return sorted(directory.rpartition(".")[0] for directory in directories)


async def _exists(ports: Ports, brought: Brought, unit: str) -> bool:
    if brought.has(unit) or brought.alias_of(unit) or brought.has_generated:
        return True
    return (await ports.units.state(unit)).load != "not-found"
