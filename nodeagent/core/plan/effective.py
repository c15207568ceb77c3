"""The config that is in force on a host, if that is not the current one.

On a first start there is no current config; after a failed update the disk has parts of another one; an admin may have
changed a file. The effective config is built entry by entry from configs that were compared with the disk, so that the
plan lists exactly the remaining changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from nodeagent.core.config.machineconfig import CORE_USER, MachineConfig, UserEntry

__all__ = ["Candidate", "effective"]

Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A config, and the ids of its entries that the host lacks.

    Ids are ``file:/etc/x``, ``unit:x.service``, ``sshkey:core`` and ``password:core``.
    """

    config: MachineConfig
    missing: Collection[str]

    def has(self, entry_id: str) -> bool:
        return entry_id not in self.missing


def effective(base: MachineConfig, candidates: Sequence[Candidate], desired: MachineConfig) -> MachineConfig:
    """Return ``base``, with each entry replaced by that of the first candidate that matches the disk.

    If no candidate matches, an entry that the desired config lacks is kept, so that it is removed, and an entry that it
    has is dropped, so that it is written again.
    """
    return replace(
        base,
        files=_pick([(c, c.config.files) for c in candidates], desired.files, "file"),
        units=_pick([(c, c.config.units) for c in candidates], desired.units, "unit"),
        users=_users(candidates, desired),
    )


def _pick(
    sources: Sequence[tuple[Candidate, Mapping[str, Entry]]], desired: Mapping[str, Entry], domain: str
) -> dict[str, Entry]:
    picked: dict[str, Entry] = {}
    for key in sorted({key for _, entries in sources for key in entries}):
        having = [(candidate, entries[key]) for candidate, entries in sources if key in entries]
        agreed = [entry for candidate, entry in having if candidate.has(f"{domain}:{key}")]
        if agreed:
            picked[key] = agreed[0]
        elif key not in desired:
            picked[key] = having[0][1]
    return picked


def _users(candidates: Sequence[Candidate], desired: MachineConfig) -> dict[str, UserEntry]:
    keys: tuple[str, ...] | None = None
    password: str | None = None
    wanted = desired.users.get(CORE_USER)
    for candidate in candidates:
        user = candidate.config.users.get(CORE_USER)
        if user is None:
            continue
        if keys is None and user.ssh_keys:
            gone_anyway = wanted is None or not wanted.ssh_keys
            if candidate.has(f"sshkey:{CORE_USER}") or gone_anyway:
                keys = user.ssh_keys
        if password is None and user.password_hash is not None:
            gone_anyway = wanted is None or wanted.password_hash is None
            if candidate.has(f"password:{CORE_USER}") or gone_anyway:
                password = user.password_hash
    if keys is None and password is None:
        # The host cannot lack anything of a user without keys and password.
        return {CORE_USER: wanted} if wanted == UserEntry(CORE_USER) else {}
    return {CORE_USER: UserEntry(CORE_USER, keys or (), password)}
