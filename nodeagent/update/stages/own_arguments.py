"""The kernel arguments that the host has on its own, and that return when no config names them any more.

They are kept as the originals of files are: before the first write of an update, for each family of arguments that the
new config names and the current one does not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from nodeagent.core.config.kargs import families_of, line_of, members
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.text import plain_json
from nodeagent.core.plan.deployment import Deployment
from nodeagent.update.ports.store import Snapshot
from nodeagent.update.run import Ports, Run, Update

_KEY = "arguments:"


async def own_arguments(
    ports: Ports, candidates: Sequence[MachineConfig], new: MachineConfig, booted: Deployment
) -> tuple[str, ...]:
    """Return the host's own tokens of all families that these configs name. The first candidate is the current config.

    Of a family that the current config does not name, all tokens are the host's own.
    """
    current = candidates[0].kernel_arguments if candidates and candidates[0] is not new else ()
    managed = families_of(current)
    own: list[str] = []
    for family in families_of(token for config in (*candidates, new) for token in config.kernel_arguments):
        if (original := await ports.store.original(f"{_KEY}{family}")) is not None:
            own += plain_json.loads(original.text.encode())
        elif family not in managed:
            own += members(line_of(booted.kernel_arguments), family)
    return tuple(own)


def changed_families(current: MachineConfig, new: MachineConfig) -> tuple[str, ...]:
    """Return the families that one of both configs names, sorted."""
    was, now = (set(families_of(config.kernel_arguments)) for config in (current, new))
    return tuple(sorted(was ^ now))


async def original_arguments(run: Run) -> list[Snapshot]:
    """Return the tokens that the host has of the families that this update begins to manage."""
    families = _named(run.update, new=True)
    if run.ports.os is None or not families:
        return []
    line = line_of((await run.ports.os.booted()).kernel_arguments)
    return [Snapshot(f"{_KEY}{family}", text=json.dumps(members(line, family))) for family in families]


def ended_arguments(update: Update) -> list[str]:
    """Return the keys of originals that are not needed after this update, or after its revert."""
    return [f"{_KEY}{family}" for family in _named(update, new=update.record.reverting)]


def _named(update: Update, *, new: bool) -> list[str]:
    """Return the families that only the new config names, or only the current one."""
    named = families_of(update.new.kernel_arguments)
    return [family for family in update.record.arguments if (family in named) == new]
