# SPDX-License-Identifier: Apache-2.0
"""Sections of a config that are read and not applied: how they compare, and why they are not applied.

Some sections are for the first boot only (disks), some require more than nodeagent does (other users). A config with an
unchanged section is accepted. A changed or removed section makes the config unreconcilable: nothing would change the
host accordingly, and a section that silently has no effect is worse than a refusal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Final

import msgspec

from nodeagent.core.config.text.document import inspect

_PROVISION: Final = "is set up when a host is provisioned and cannot change on a running one"
_IGNITION: Final = "steers Ignition at the first boot and has no effect on a running host"

_WHY: Final[Mapping[str, str]] = {
    "storage.files": "appends to a file or has HTTP headers, which cannot be repeated safely on a running host, or is "
    "the image that nodeagent itself is in, which is updated as it was installed",
    "storage.directories": "overwrite would delete what is in a directory of a running host. Without it, mode and "
    "owner of the directory are set; a file in /etc/tmpfiles.d empties one (D) at each boot",
    "storage.links": "hard links, and links below /etc/systemd/system, are not managed on a running host. A symbolic "
    "link or a copy takes the place of the first; mask, enabled and Alias= of a unit make the others",
    "storage.disks": _PROVISION,
    "storage.filesystems": _PROVISION,
    "storage.luks": _PROVISION,
    "storage.raid": _PROVISION,
    "passwd.groups": "groups are not managed on a running host. A file in /etc/sysusers.d makes them (g) at each boot",
    "passwd.users": "root, users of the system (uid below 1000), a user without a group of its own, the removal of a "
    "user, and of core all but its SSH keys and password hash are not managed on a running host. A file in "
    "/etc/sysusers.d makes such users (u) and memberships (m) at each boot",
    "ignition": _IGNITION,
}


def why(section: str) -> str:
    """Return the reason for a key of ``MachineConfig.unapplied``, such as ``storage.links[/etc/x]``."""
    name = section.partition("[")[0]
    # All keys below ``ignition`` share one reason.
    return _WHY.get(name) or _WHY[name.partition(".")[0]]


class UnsupportedSections:
    """Digests of the sections. Equality is all that is needed, and the content can be a key."""

    def __init__(self) -> None:
        self._digests: dict[str, str] = {}

    def record(self, section: str, value: object) -> None:
        """Record the digest of ``value``, unless it is null, empty, or made of such values only.

        Raises ``InvalidInput`` for a value that ``document.load`` would refuse.
        """
        value = msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value
        inspect(value, "the config", (section,))
        plain = _prune(value)
        if plain is not None:
            text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
            self._digests[section] = hashlib.sha256(text.encode()).hexdigest()

    def sections(self) -> dict[str, str]:
        return dict(sorted(self._digests.items()))


def _prune(value: object) -> object:
    """Return ``value`` without the parts that mean the same as absent ones. ``inspect`` bounds the recursion."""
    if isinstance(value, dict):
        pruned = {key: plain for key, item in value.items() if (plain := _prune(item)) is not None}
        return pruned or None
    if isinstance(value, list):
        # An empty item is kept: the place of a partition in its list can be its number.
        return [_prune(item) for item in value] or None
    return None if value == "" else value
