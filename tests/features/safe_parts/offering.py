# SPDX-License-Identifier: Apache-2.0
"""The offer of the feature, for a host in memory, whose configs have no texts."""

from __future__ import annotations

from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.features.safe_parts.decide import compose
from nodeagent.features.safe_parts.offer import SafeParts, SafePartsGuard
from nodeagent.features.safe_parts.settings import SafePartsSettings
from nodeagent.update.next.preflight import Desired
from nodeagent.update.stages.guard import Guard
from tests.world.run import Host


def offering(host: Host, *guards: Guard) -> None:
    """Let ``host`` apply safe parts, beside these guards."""

    def composed(current: Desired, desired: Desired, waiting: frozenset[str]) -> Desired:
        found = compose(current.config, desired.config, waiting)
        return Desired(ConfigSource(found.name, host.add(found, "safe parts"), b""), found)

    host.guards = (SafePartsGuard(SafeParts(SafePartsSettings(on_blocked="apply-safe-parts"), composed)), *guards)
