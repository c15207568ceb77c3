# SPDX-License-Identifier: Apache-2.0
"""Let systemd read the unit files again."""

from __future__ import annotations

from nodeagent.core.plan.steps import DaemonReload
from nodeagent.update.steps.step import StepWork


class DaemonReloadWork(StepWork[DaemonReload]):
    @property
    def limit(self) -> float:
        return self.run.policy.daemon_reload_timeout

    async def do(self) -> str:
        await self.run.ports.units.daemon_reload(self.limit)
        return ""
