# SPDX-License-Identifier: Apache-2.0
"""What the host had before a config managed it, and what returns when no config names it any more.

Originals are kept once, before the first write of the update that begins to manage a path or a family of kernel
arguments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from nodeagent.core.config.file_tree import SymbolicLink, expand
from nodeagent.core.config.kargs import families_of, line_of, members
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.paths import unit_path
from nodeagent.core.config.text import plain_json
from nodeagent.core.plan.deployment import Deployment
from nodeagent.core.plan.steps import (
    LeaveGroup,
    RemovePath,
    RetireUser,
    accounts_of,
    decides_enablement,
    memberships_of,
)
from nodeagent.errors import AgentError
from nodeagent.update.ports.store import Snapshot
from nodeagent.update.run import Ports, Run, Update
from nodeagent.update.steps.accounts import key_of_account

# Directories of unit files besides that of the admin: systemd.unit(5).
SHIPPED_UNITS: Final = ("/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system")

_ARGUMENTS: Final = "arguments:"


def managed_keys(config: MachineConfig) -> set[str]:
    """Return the keys of what a config decides about: paths with an original to restore, and units."""
    units = {f"unit:{unit.name}" for unit in config.units.values() if decides_enablement(unit)}
    accounts = {f"user:{name}" for name in accounts_of(config)}
    memberships = {f"member:{membership}" for membership in memberships_of(config)}
    return {f"path:{path}" for path in expand(config)} | units | accounts | memberships


async def original_of(ports: Ports, path: str) -> Snapshot:
    """Return the state that a path gets when it leaves the config: the one from before it was managed.

    Without a saved original, that is the default of the OS in /usr/etc, where an ostree host keeps its version of /etc.
    """
    key = f"path:{path}"
    if (original := await ports.store.original(key)) is not None:
        return original
    shipped = await ports.files.capture(f"/usr{path}") if path.startswith("/etc/") else None
    return Snapshot(key, node=shipped)


async def has_other_file(ports: Ports, unit: str) -> bool:
    """Return whether the host has a file of ``unit`` besides the one that a config manages."""
    if (await original_of(ports, unit_path(unit))).node is not None:
        return True
    for directory in SHIPPED_UNITS:
        # A file that cannot be read is one that systemd cannot load either.
        with suppress(AgentError):
            if await ports.files.capture(f"{directory}/{unit}") is not None:
                return True
    return False


async def keep_originals(run: Run, snapshots: Sequence[Snapshot], own_links: Mapping[str, SymbolicLink | None]) -> None:
    """Keep the originals of what this update begins to manage. ``own_links`` has what was in the place of each link
    that a config made, by path."""
    ports, update = run.ports, run.update
    newly_managed = frozenset(update.record.newly_managed)
    originals = []
    for snapshot in [_before_links(saved, own_links) for saved in snapshots if saved.key in newly_managed]:
        if not await _shipped(ports, snapshot):
            originals.append(snapshot)
        update.progressed()
    await ports.store.keep_originals([*originals, *await _original_arguments(run)])


def _before_links(snapshot: Snapshot, own_links: Mapping[str, SymbolicLink | None]) -> Snapshot:
    """Return what a path gets back when it leaves the config. A link of a unit of the config is no original: the unit
    file takes its place."""
    path = snapshot.key.partition(":")[2]
    own = path in own_links and isinstance(snapshot.node, SymbolicLink)
    return replace(snapshot, node=own_links[path]) if own else snapshot


async def _shipped(ports: Ports, snapshot: Snapshot) -> bool:
    """Return whether a path in /etc is as the OS ships it."""
    # No original is kept of such a path: another image may be booted when the path leaves the config, and its own
    # default is right then.
    kind, _, path = snapshot.key.partition(":")
    return kind == "path" and path.startswith("/etc/") and not await ports.files.differs(f"/usr{path}", snapshot.node)


async def forget_originals(ports: Ports, update: Update) -> None:
    """Delete the originals that this update restored, so that they are not restored a second time."""
    reverting = update.record.reverting
    paths = [f"path:{step.path}" for step in update.writes if isinstance(step, RemovePath)]
    paths += [key_of_account(step) for step in update.writes if isinstance(step, RetireUser | LeaveGroup)]
    # The families that are not named any more after this update, or after its revert.
    families = [f"{_ARGUMENTS}{family}" for family in _changed_families(update, new=reverting)]
    await ports.store.forget_originals([*(update.record.newly_managed if reverting else paths), *families])


# Kernel arguments that the host has on its own.


async def own_arguments(
    ports: Ports, candidates: Sequence[MachineConfig], new: MachineConfig, booted: Deployment
) -> tuple[str, ...]:
    """Return the host's own tokens of all families that these configs name, without those that ``new`` takes away. The
    first candidate is the current config.

    Of a family that the current config does not name, all tokens are the host's own.
    """
    current = candidates[0].named_arguments if candidates and candidates[0] is not new else ()
    managed = families_of(current)
    own: list[str] = []
    for family in families_of(token for config in (*candidates, new) for token in config.named_arguments):
        if (original := await ports.store.original(f"{_ARGUMENTS}{family}")) is not None:
            own += plain_json.loads(original.text.encode())
        elif family not in managed:
            own += members(line_of(booted.kernel_arguments), family)
    return tuple(token for token in own if token not in new.absent_arguments)


def changed_families(current: MachineConfig, new: MachineConfig) -> tuple[str, ...]:
    """Return the families that one of both configs names, sorted."""
    was, now = (set(families_of(config.named_arguments)) for config in (current, new))
    return tuple(sorted(was ^ now))


async def _original_arguments(run: Run) -> list[Snapshot]:
    """Return the tokens that the host has of the families that this update begins to manage."""
    families = _changed_families(run.update, new=True)
    if run.ports.os is None or not families:
        return []
    line = line_of((await run.ports.os.booted()).kernel_arguments)
    return [Snapshot(f"{_ARGUMENTS}{family}", text=json.dumps(members(line, family))) for family in families]


def _changed_families(update: Update, *, new: bool) -> list[str]:
    """Return the families that only the new config names, or only the current one."""
    named = families_of(update.new.named_arguments)
    return [family for family in update.record.arguments if (family in named) == new]
