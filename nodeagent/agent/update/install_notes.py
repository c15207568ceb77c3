"""What an ``[Install]`` section of a unit that an update enables does not do, as warnings before the lease.

systemd enables such a unit without an error, or with a line that only the caller of systemctl would read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace

from nodeagent.agent.update.run import Ports, Update
from nodeagent.agent.update.unit_checks import MAX_WARNINGS
from nodeagent.core.config.file_tree import FileTreeEntry, expand
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.unit_names import did_you_mean
from nodeagent.core.plan.enablement.install import installs, taken_aliases
from nodeagent.core.plan.enablement.unit_files import EnablementFacts, overlaid
from nodeagent.core.plan.steps import EnableUnit, RemovePath
from nodeagent.core.plan.unit_origin import Brought


async def notes_on_install(ports: Ports, update: Update) -> list[str]:
    """Return the warnings for the units that the update enables."""
    units = sorted({step.unit for step in update.writes if isinstance(step, EnableUnit)})
    if not units:
        return []
    changes: dict[str, FileTreeEntry | None] = {
        step.path: None for step in update.writes if isinstance(step, RemovePath)
    }
    tree = await asyncio.to_thread(expand, update.new)
    changes |= {path: node for path, node in tree.items() if path.startswith(f"{UNIT_DIR}/")}
    facts = await ports.unit_files.facts(units, changes)
    facts = replace(facts, files=overlaid(facts.files, changes))
    found = [*_without_effect(units, facts)]
    if update.target is None:
        found += [note async for note in _missing(ports, update, units, facts)]
    more = [f"{len(found) - MAX_WARNINGS} more lines of [Install] have no effect"] if len(found) > MAX_WARNINGS else []
    return [f"warning: {note}" for note in (*found[:MAX_WARNINGS], *more)]


def _without_effect(units: list[str], facts: EnablementFacts) -> Iterator[str]:
    for unit in units:
        taken = taken_aliases(unit, facts)
        for alias, why in sorted(taken.items()):
            yield f"unit:{unit} Alias={alias} has no effect: {UNIT_DIR}/{alias} is {why}"
        found = next(iter(installs(unit, facts)), None)
        if found is not None and not (found.links or found.also or taken):
            yield f"unit:{unit} has nothing in [Install], so it is not enabled: it starts if another unit starts it"


async def _missing(ports: Ports, update: Update, units: list[str], facts: EnablementFacts) -> AsyncIterator[str]:
    """Yield the units that are named as those that start another one, and that do not exist."""
    brought = Brought(update.new)
    known: dict[str, bool] = {}
    for unit in units:
        for wanting in _wanting(next((found.links for found in installs(unit, facts)), {})):
            if wanting not in known:
                known[wanting] = await _exists(ports, brought, wanting)
            if not known[wanting]:
                hint = did_you_mean(wanting, {*brought.files, *await ports.units.files()})
                yield f"unit:{unit} is started by {wanting}, which exists neither on this host nor in the config{hint}"


def _wanting(found: Mapping[str, str]) -> list[str]:
    directories = {path.partition("/")[0] for path in found if "/" in path}
    return sorted(directory.rpartition(".")[0] for directory in directories)


async def _exists(ports: Ports, brought: Brought, unit: str) -> bool:
    if brought.has(unit) or brought.alias_of(unit) or brought.has_generated:
        return True
    return (await ports.units.state(unit)).load != "not-found"
