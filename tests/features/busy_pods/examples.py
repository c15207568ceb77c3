# SPDX-License-Identifier: Apache-2.0
"""What busy pods add to the tables of the base's tests."""

from __future__ import annotations

from typing import Final

from nodeagent.features.busy_pods.events import BusyPod, BusyPodsFound, HeldByPods

EVENTS: Final = (
    BusyPodsFound(HeldByPods((BusyPod("db", "backup-28", "app=backup"),), 3600.0)),
    BusyPodsFound(None),
)
