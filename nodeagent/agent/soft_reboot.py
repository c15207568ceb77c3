"""Warns at once of a soft reboot into a deployment that is not finalized."""

from __future__ import annotations

import asyncio

from nodeagent.agent.report.report import Report
from nodeagent.agent.update.os_deployments import HostDeployments
from nodeagent.errors import Refused
from nodeagent.reasons import Reason

TOPIC = "soft reboot"


class SoftRebootWatch:
    """``changed`` is called when a soft reboot may have been prepared or cleared; ``run`` reports what that means."""

    def __init__(self, os: HostDeployments, report: Report) -> None:
        self._os = os
        self._report = report
        self._look = asyncio.Event()

    def changed(self) -> None:
        self._look.set()

    async def run(self) -> None:
        while True:
            await self._look.wait()
            # Cleared before the read, so that a preparation during the read is not missed.
            self._look.clear()
            if deployment := await self._os.unmerged_soft_reboot():
                message = (
                    f"{deployment} is locked and prepared for a soft reboot: systemctl reboot would start it unmerged"
                )
                self._report.problem(TOPIC, Refused(message, reason=Reason.LOCKED_SOFT_REBOOT))
            else:
                self._report.solved(TOPIC, "no locked deployment is prepared for a soft reboot any more")
