# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from typing import Final

from nodeagent.door import Base, Door, Feature
from nodeagent.features.alerts.reasons import AlertReason
from nodeagent.features.alerts.settings import AlertSettings


def _open(base: Base) -> Feature:
    from nodeagent.features.alerts.guard import AlertGuard
    from nodeagent.features.alerts.prometheus import PrometheusAlerts

    alerts = PrometheusAlerts(base.settings.of(AlertSettings))
    return Feature(use=lambda settings: alerts.use(settings.of(AlertSettings)), guard=AlertGuard(alerts))


DOOR: Final = Door(
    title="Alerts",
    page="usage/alerts.md",
    settings=(AlertSettings,),
    reasons=AlertReason,
    open=_open,
)
