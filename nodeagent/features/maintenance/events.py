# SPDX-License-Identifier: Apache-2.0
"""The event of the feature."""

from __future__ import annotations

from dataclasses import dataclass

from nodeagent.features.maintenance.decide import Maintenance
from nodeagent.update.ports.events import Event


@dataclass(frozen=True, slots=True)
class MaintenanceChanged(Event):
    """``waits`` is the cause of a wait, as "REASON: message". Without a ``message`` nothing happened that an operator
    notices."""

    maintenance: Maintenance | None
    waits: str = ""
    message: str = ""
