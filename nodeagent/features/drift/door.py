# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from typing import Final

from nodeagent.door import Base, Door, Feature
from nodeagent.features.drift.reasons import DriftReason
from nodeagent.features.drift.view import STATUS, VIEWS
from nodeagent.settings.schema import Settings


def _open(base: Base) -> Feature:
    from nodeagent.features.drift.culprits import HostCulprits
    from nodeagent.features.drift.monitor import DriftMonitor
    from nodeagent.features.drift.path_watch import PathWatch
    from nodeagent.features.drift.repair import DriftRepair

    ports, store = base.ports, base.store
    culprits = HostCulprits(base.clock)
    monitor = DriftMonitor(ports, PathWatch(), culprits, base.reporter, base.load, base.wake, store)
    repair = DriftRepair(ports, base.reporter, base.shown, base.load, base.policy_between, base.settings.on_drift)

    def use(settings: Settings) -> None:
        # What an update does about drift is the base's, which has the setting.
        repair.on_drift = settings.on_drift

    return Feature(
        use=use,
        sinks=(monitor.sink,),
        at_rest=repair,
        beside=[("the watch for drift", monitor.run)],
    )


DOOR: Final = Door(
    title="Drift",
    page="explanation/drift.md",
    reasons=DriftReason,
    events=VIEWS,
    status=STATUS,
    open=_open,
)
