"""Warns at once of a soft reboot into a deployment that is not finalized."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from nodeagent.agent.report.report import Report
from nodeagent.agent.update.os_deployments import HostDeployments
from nodeagent.errors import Refused
from nodeagent.reasons import Reason

TOPIC = "soft reboot"


@dataclass(eq=False)
class SoftRebootWatch:
    """``changed`` is called when a soft reboot may have been prepared or cleared; ``run`` reports what that means."""

    os: HostDeployments
    report: Report
    _look: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def changed(self) -> None:
        self._look.set()

    async def run(self) -> None:
        while True:
            await self._look.wait()
            # Cleared before the read, so that a preparation during the read is not missed.
            self._look.clear()
            if deployment := await self.os.port.unmerged_soft_reboot():
                message = (
                    f"{deployment} is locked and prepared for a soft reboot: systemctl reboot would start it unmerged"
                )
                self.report.problem(TOPIC, Refused(message, reason=Reason.LOCKED_SOFT_REBOOT))
            else:
                self.report.solved(TOPIC, "no locked deployment is prepared for a soft reboot any more")
