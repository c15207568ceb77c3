"""Sections of a config that we read but do not apply: what they are, how they compare, why they stay as they are.

Some are for the first boot only (disks), some would need more than we do (other users). An unchanged one is fine. A
changed one makes the config unreconcilable, removal included: nobody would remove the thing from the host, and a
section that quietly means nothing is worse than a refusal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Final

__all__ = ["Unapplied", "why"]

_PROVISION: Final = "is set up when a host is provisioned and cannot change on a running one"
_IGNITION: Final = "steers Ignition at the first boot and has no effect on a running host"

_WHY: Final[Mapping[str, str]] = {
    "storage.files": "appends to a file or has HTTP headers, which cannot be repeated safely on a running host",
    "storage.directories": "directories are not managed on a running host, only the files in them",
    "storage.links": "links are not managed on a running host",
    "storage.disks": _PROVISION,
    "storage.filesystems": _PROVISION,
    "storage.luks": _PROVISION,
    "storage.raid": _PROVISION,
    "passwd.groups": "groups are not managed on a running host",
    "passwd.users": "of users, only the SSH keys and the password hash of core are managed on a running host",
    "kernelArguments": "Ignition's kernel arguments are for the first boot; use spec.kernelArguments",
    "networkd": "networkd units are not managed on a running host; use storage.files",
    "ignition": _IGNITION,
}


def why(section: str) -> str:
    """The reason for a key of ``MachineConfig.unapplied``, like ``storage.links[/etc/x]``."""
    name = section.partition("[")[0]
    return _WHY.get(name) or _WHY[name.partition(".")[0]]


class Unapplied:
    """Gathers the sections. What is kept of each is a digest: equality is all we need, and the content can be a key."""

    def __init__(self) -> None:
        self._digests: dict[str, str] = {}

    def note(self, section: str, value: object) -> None:
        """Remembers ``value``, unless it says nothing (null, empty, or made of nothing else)."""
        plain = _prune(value)
        if plain is not None:
            text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
            self._digests[section] = hashlib.sha256(text.encode()).hexdigest()

    def sections(self) -> dict[str, str]:
        return dict(sorted(self._digests.items()))


def _prune(value: object) -> object:
    """``value`` without what is the same as absent. The document's depth limit bounds the recursion."""
    if isinstance(value, dict):
        kept = {key: plain for key, item in value.items() if (plain := _prune(item)) is not None}
        return kept or None
    if isinstance(value, list):
        return [_prune(item) for item in value] or None
    return None if value == "" else value
