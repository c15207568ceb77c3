# SPDX-License-Identifier: Apache-2.0
"""The place of the alerts in the course of an update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nodeagent.features.alerts.reasons import AlertReason
from nodeagent.update.run import Run, Update
from nodeagent.update.stages.guard import Guard


class Alerts(Protocol):
    @property
    def query(self) -> str: ...

    async def check(self) -> str: ...


class AlertGuard(Guard):
    """An update that drains or stops the node begins while no alert fires."""

    def __init__(self, alerts: Alerts) -> None:
        self._alerts = alerts

    async def planned(self, update: Update, *, stops_node: bool) -> Sequence[str]:  # noqa: ARG002
        if not (stops_node and self._alerts.query):
            return ()
        return [f"alerts: the update begins when this returns nothing: {self._alerts.query}"]

    async def permit(self, run: Run) -> None:
        if unread := await self._alerts.check():
            run.report_failure("alerts", f"continuing: {unread}", AlertReason.ALERTS_UNREACHABLE)
