# SPDX-License-Identifier: Apache-2.0
"""How much of a config the next one removes. A much smaller config is most often a mistake: a fragment that was meant
to be merged, an empty list, the wrong file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.change import ChangeKind
from nodeagent.core.plan.diff import diff
from nodeagent.core.plan.sides import NO_CONFIG
from nodeagent.errors import Refused
from nodeagent.reasons import Reason

BY_CLUSTER: Final = "the desired config is managed by the cluster"
# A config with fewer entries may lose any number of them.
FEWEST: Final = 10

LOOKS_LIKE_PART: Final = "it looks like a part of a config, such as a cluster merges"
# The convention for the names of MachineConfigs that a controller merges, such as 99-worker-chrony.
_PART: Final = re.compile(r"\d\d-")


@dataclass(frozen=True, slots=True)
class Removal:
    """``removed`` of the ``total`` entries of a config, and those that an operator confirmed.

    ``part``: the new config looks like a part of one, and the other does not.
    """

    removed: int = 0
    total: int = 0
    confirmed: int = 0
    part: bool = False

    @property
    def needs_confirmation(self) -> bool:
        most = self.removed * 2 > self.total
        return most and (self.part or self.total >= FEWEST) and self.removed != self.confirmed


def removal_of(current: MachineConfig | None, new: MachineConfig, confirmed: int = 0) -> Removal:
    """Compare two configs, whatever the host has of them."""
    if current is None:
        return Removal()
    removed = sum(change.kind is ChangeKind.REMOVED for change in diff(current, new))
    part = looks_like_part(new) and not looks_like_part(current)
    return Removal(removed, len(diff(NO_CONFIG, current)), confirmed, part)


def looks_like_part(config: MachineConfig) -> bool:
    """Return whether a config is probably one of several that a controller merges. A merged one has no pool."""
    return bool(config.pool or _PART.match(config.name))


def check_removal(name: str, removal: Removal) -> None:
    """Raise ``Refused`` (``RemovesMost``) for a config that removes most entries, unless that was confirmed."""
    if not removal.needs_confirmation:
        return
    if removal.part:
        raise Refused(
            f"{name} removes {removal.removed} of {removal.total} entries, and {LOOKS_LIKE_PART}",
            reason=Reason.REMOVES_MOST,
            hint="name all MachineConfigs of the host, or their directory: nodeagent apply FILE FILE ... merges them;"
            f" if that is meant, confirm it with nodeagent apply --remove {removal.removed} FILE",
        )
    raise Refused(
        f"{name} removes {removal.removed} of {removal.total} entries",
        reason=Reason.REMOVES_MOST,
        hint="name the complete config, because what a config lacks is removed: nodeagent apply FILE FILE ... merges"
        " MachineConfigs that are parts of one; if that is meant, confirm it with"
        f" nodeagent apply --remove {removal.removed} FILE",
    )
