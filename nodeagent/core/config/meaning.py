"""Compute the digest of what a config requires of a host.

The digest does not depend on the name, annotations, labels and time stamps, the order of keys and entries, the encoding
of contents, or the choice of YAML or JSON. Two configs with the same digest fail for the same cause.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields

from nodeagent.core.config.machineconfig import FileEntry, MachineConfig, UnitEntry, UserEntry

# The name is not part of the digest; the other fields are written in a canonical form.
APART = frozenset({"name", "files", "units", "users"})


def meaning(config: MachineConfig) -> str:
    """Return a SHA-256 in hex. Takes milliseconds for a large config: do not call it in the event loop."""
    form = {
        "files": [_file(config.files[path]) for path in sorted(config.files)],
        "units": [_unit(config.units[name]) for name in sorted(config.units)],
        "users": [_user(config.users[name]) for name in sorted(config.users)],
        **{field.name: getattr(config, field.name) for field in fields(config) if field.name not in APART},
    }
    text = json.dumps(form, sort_keys=True, separators=(",", ":"), default=dict)
    return hashlib.sha256(text.encode()).hexdigest()


def _file(entry: FileEntry) -> list[object]:
    # ``overwrite`` has no effect on a host.
    return [entry.path, hashlib.sha256(entry.content).hexdigest(), entry.mode, _id(entry.user), _id(entry.group)]


def _id(owner: int | str) -> int | str:
    return 0 if owner == "root" else owner


def _unit(entry: UnitEntry) -> list[object]:
    return [entry.name, entry.contents, entry.enabled, entry.mask, sorted(entry.dropins.items())]


def _user(entry: UserEntry) -> list[object]:
    return [entry.name, entry.ssh_keys, entry.password_hash]
