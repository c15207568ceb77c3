"""Units that the next OS brings: their unit files are read in the tree of the staged deployment.

The links that enable them are made in the running /etc, before the reboot. The merge of /etc carries them over, so the
units start in the first boot of that OS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from nodeagent.core.config.file_tree import FileTreeEntry
from nodeagent.core.plan.enablement.unit_files import source_of
from nodeagent.core.plan.steps import EnableUnit
from nodeagent.core.plan.unit_entries import dropins_of
from nodeagent.core.plan.unit_origin import Brought
from nodeagent.errors import AgentError
from nodeagent.update.next.unit_checks import missing_warnings
from nodeagent.update.run import Ports, Update


async def next_os_units(ports: Ports, update: Update) -> Mapping[str, FileTreeEntry]:
    """Return the unit files of the staged OS for units that this update enables and this host lacks.

    A unit that the next OS lacks as well is a note, also if the config has only a drop-in of it. Without an answer,
    such units are enabled after the boot.
    """
    brought, own = Brought(update.new), update.record.os.staged
    if ports.os is None or not own:
        return {}
    units = [step.unit for step in update.writes if isinstance(step, EnableUnit) and not brought.has(step.unit)]
    entries = {f"unit:{unit}": unit for unit in units}
    dropins = await asyncio.to_thread(_dropins, brought)
    try:
        here = await ports.unit_files.facts(units)
        missing = {entry: unit for entry, unit in entries.items() if source_of(unit, here.files) is None}
        missing |= {path: unit for path, unit in dropins.items() if (await ports.units.state(unit)).load == "not-found"}
        deployment = next((each for each in await ports.os.list() if each.id == own), None)
        if not missing or deployment is None:
            return {}
        found = await ports.unit_files.shipped(deployment, {*missing.values()})
    except AgentError as error:
        update.add_notes(f"units of the next OS are enabled after the boot: {error}")
        return {}
    missing = {entry: unit for entry, unit in missing.items() if source_of(unit, found) is None}
    warnings = missing_warnings(missing, {}, "on this host, in the config or in the next OS")
    update.add_notes(*(f"warning: {each.path} {each.message}" for each in warnings))
    return found


def _dropins(brought: Brought) -> dict[str, str]:
    """Return the drop-ins of units that the config does not bring, each with its unit."""
    return {
        path: unit
        for path, unit in dropins_of(brought.config).items()
        if not brought.has(unit) and not brought.generator_of(unit)
    }
