# SPDX-License-Identifier: Apache-2.0
"""Drift of the operating system: how the booted one differs from the config, and what the boot of another one changed.

The merge of /etc replaces a file that equals the default of the old OS by the default of the new one. An update of the
agent detects that and writes the file again; after an update by another program it is drift, whose cause is that boot.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from nodeagent.core.config.file_tree import FileTreeEntry, RegularFile, SymbolicLink
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.change import USERSPACE
from nodeagent.core.plan.entries import entries_by_path
from nodeagent.errors import AgentError
from nodeagent.update.next.os_fields import os_drift
from nodeagent.update.ports.store import Notes
from nodeagent.update.run import Ports

# The config that was applied last, and the OS that ran by then.
NOTE: Final = "drift:os"


@dataclass(eq=False)
class OsDrift:
    ports: Ports
    notes: Notes
    # The entries that the last comparison found, for one without an answer of rpm-ostreed.
    _found: Mapping[str, str] = field(default_factory=dict, init=False)
    # Whether the last comparison had an answer.
    known: bool = field(default=True, init=False)
    # Whether an update ended since the last comparison.
    applied: bool = field(default=False, init=False)

    async def compare(self, config: MachineConfig) -> Mapping[str, str]:
        """Return the entries of the OS that differ. Those of the last time if rpm-ostreed does not answer."""
        try:
            self._found, self.known = await os_drift(self.ports, config), True
        except AgentError:
            self.known = False
        return self._found

    async def booted_since(self, digest: str) -> str:
        """Return the name of the booted OS if another one ran when this config was applied; "" if it is the same."""
        if self.ports.system is None:
            return ""
        name, (applied, _, ran) = await self.ports.system.name(), (await self.notes.note(NOTE)).partition(" ")
        if applied != digest or self.applied:
            # The end of an update: whatever OS it came with is that of the config.
            self.applied = False
            await self.notes.keep_note(NOTE, f"{digest} {name}")
            return ""
        return name if name != ran else ""

    async def caused(self, config: MachineConfig, wrong: Collection[str]) -> frozenset[str]:
        """Return the entries of ``wrong`` of which a path is now as the booted OS ships it."""
        caused = {entry for entry in wrong if entry.partition(":")[0] not in USERSPACE}
        for path, entry in entries_by_path(config).items():
            if entry in wrong and path.startswith("/etc/") and await self._is_default(path):
                caused.add(entry)
        return frozenset(caused)

    async def _is_default(self, path: str) -> bool:
        with suppress(AgentError):
            shipped = await self.ports.files.capture(f"/usr{path}")
            return shipped is not None and _same(shipped, await self.ports.files.capture(path))
        return False


def _same(shipped: FileTreeEntry, present: FileTreeEntry | None) -> bool:
    """Compare content or target: owner and label of /usr/etc are those of another directory."""
    match shipped, present:
        case RegularFile(), RegularFile():
            return shipped.content == present.content
        case SymbolicLink(), SymbolicLink():
            return shipped.target == present.target
        case _:
            return False
