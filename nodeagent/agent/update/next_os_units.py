"""Units that the next OS brings: their unit files are read in the tree of the staged deployment.

The links that enable them are made in the running /etc, before the reboot. The merge of /etc carries them over, so the
units start in the first boot of that OS.
"""

from __future__ import annotations

from collections.abc import Mapping

from nodeagent.agent.update.run import Ports, Update
from nodeagent.core.config.file_tree import FileTreeEntry
from nodeagent.core.plan.enablement.unit_files import source_of
from nodeagent.core.plan.steps import EnableUnit
from nodeagent.core.plan.unit_origin import Brought
from nodeagent.errors import AgentError


async def next_os_units(ports: Ports, update: Update) -> Mapping[str, FileTreeEntry]:
    """Return the unit files of the staged OS for units that this update enables and this host lacks.

    A unit that the next OS lacks as well is a note. Without an answer, such units are enabled after the boot.
    """
    brought, own = Brought(update.new), update.record.os.staged
    units = [step.unit for step in update.writes if isinstance(step, EnableUnit) and not brought.has(step.unit)]
    if ports.os is None or not own or not units:
        return {}
    try:
        here = await ports.unit_files.facts(units)
        missing = [unit for unit in units if source_of(unit, here.files) is None]
        deployment = next((each for each in await ports.os.list() if each.id == own), None)
        if not missing or deployment is None:
            return {}
        found = await ports.unit_files.shipped(deployment, missing)
    except AgentError as error:
        update.add_notes(f"units of the next OS are enabled after the boot: {error}")
        return {}
    for unit in missing:
        if source_of(unit, found) is None:
            update.add_notes(
                f"warning: unit:{unit} there is no unit {unit} on this host, in the config or in the next OS"
            )
    return found
