# SPDX-License-Identifier: Apache-2.0
"""What maintenance adds to the tables of the base's tests."""

from __future__ import annotations

from typing import Final

from nodeagent.features.maintenance.events import MaintenanceChanged

EVENTS: Final = (MaintenanceChanged(None, message="the message"),)
REQUESTS: Final = {
    "maintenance start --reason disk": ("Get", "StartMaintenance"),
    "maintenance stop": ("StopMaintenance", "Get"),
}
READS: Final = {"maintenance status": ("Get",)}
CHANGES: Final = ("StartMaintenance", "StopMaintenance")
