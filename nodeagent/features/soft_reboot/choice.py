# SPDX-License-Identifier: Apache-2.0
"""The choice of a soft reboot, where it is enough for the update and the host can make one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from nodeagent.core.boot import RebootKind
from nodeagent.core.plan.change import Plan
from nodeagent.core.plan.reboot_kind import ChosenKind
from nodeagent.errors import AgentError, NoSoftReboot, Refused, ServiceUnavailable, SoftObstacle
from nodeagent.features.soft_reboot.decide import fallback_kind, planned_kind
from nodeagent.features.soft_reboot.reasons import SoftRebootReason
from nodeagent.features.soft_reboot.settings import SoftRebootSettings
from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason
from nodeagent.update.run import Ports, Run, Update
from nodeagent.update.stages.guard import Guard
from nodeagent.update.stages.reboot_choice import RebootChoice
from nodeagent.update.states import Apply

_REASONS: Final[Mapping[SoftObstacle, SoftRebootReason]] = {
    SoftObstacle.UNSUPPORTED: SoftRebootReason.SOFT_REBOOT_UNSUPPORTED,
    SoftObstacle.ANOTHER_SYSTEM: SoftRebootReason.NEXT_ROOT_PREPARED,
    SoftObstacle.KERNEL: SoftRebootReason.KERNEL_START_NEEDED,
    SoftObstacle.NOT_PREPARED: SoftRebootReason.SOFT_REBOOT_NOT_PREPARED,
}


class CheckHost(Protocol):
    """Raises ``NoSoftReboot`` if a soft reboot is not possible, or would start another system.

    Without ``same_system`` another one may be prepared, which ``Deployments.check_soft_reboot`` checks.
    """

    async def __call__(self, *, same_system: bool) -> None: ...


class SoftReboots(RebootChoice):
    def __init__(self, check_host: CheckHost, settings: SoftRebootSettings) -> None:
        self._check_host = check_host
        self._settings = settings

    def use(self, settings: SoftRebootSettings) -> None:
        self._settings = settings

    def allows_soft(self, *, planned: bool) -> bool:
        # With fallback, the reboot into a new deployment stays a full one, which every cluster expects.
        return self._settings.soft == "auto" or (not planned and self._settings.soft == "fallback")

    async def for_fallback(self, ports: Ports, plan: Plan) -> ChosenKind:  # noqa: ARG002
        chosen = fallback_kind((planned.change for planned in plan.changes), soft=self.allows_soft(planned=False))
        if chosen.kind is RebootKind.SOFT:
            try:
                # A fallback is chosen while the host is in trouble, so any doubt leads to the full reboot.
                await self._check_host(same_system=True)
            except AgentError as error:
                return ChosenKind(RebootKind.FULL, error.message, _reason(error))
        return chosen

    async def for_planned(self, ports: Ports, update: Update, staged: str) -> ChosenKind:
        deploys = update.target is not None
        chosen = planned_kind(update.plan.changes, soft=self.allows_soft(planned=True), deploys=deploys)
        if chosen.kind is not RebootKind.SOFT:
            return chosen
        try:
            await self._check_planned(ports, staged)
        except ServiceUnavailable:
            raise
        except AgentError as error:
            return ChosenKind(RebootKind.FULL, error.message, _reason(error))
        # Only the deployment itself shows whether its kernel and initramfs are those that run.
        return chosen if staged else ChosenKind(None, "decided when the deployment is staged")

    async def check(self, run: Run) -> None:
        try:
            if isinstance(run.record.leg, Apply):
                await self._check_planned(run.ports, run.record.os.staged)
            else:
                await self._check_host(same_system=True)
        except ServiceUnavailable:
            raise
        except AgentError as error:
            # A full reboot would not help: the deployment is to be staged again.
            if error.reason == Reason.STAGED_LOST:
                raise Refused(error.message, reason=error.reason) from error
            # An answer that is no yes is a no.
            reason = _reason(error) if isinstance(error, NoSoftReboot) else SoftRebootReason.SOFT_REBOOT_UNSUPPORTED
            raise NoSoftReboot(error.message, reason=reason) from error

    def reason(self, error: NoSoftReboot) -> AnyReason:
        return _reason(error)

    async def _check_planned(self, ports: Ports, staged: str) -> None:
        # The system that is prepared may be the staged one, from before a restart of the agent.
        await self._check_host(same_system=False)
        if staged and ports.os is not None:
            await ports.os.port.check_soft_reboot(staged)


class SoftRebootGuard(Guard):
    def __init__(self, reboots: SoftReboots) -> None:
        self.reboots = reboots


def _reason(error: AgentError) -> AnyReason:
    obstacle = error.obstacle if isinstance(error, NoSoftReboot) else None
    return error.reason if obstacle is None else _REASONS[obstacle]
