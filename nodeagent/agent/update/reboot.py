"""Rebooting the host, last and alone: other people's block inhibitors first, then what is staged is unlocked, then
logind, then we wait to die. A power-off respects the same inhibitors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from nodeagent.agent.update.admission import recheck_before_reboot
from nodeagent.agent.update.lease_watch import while_held
from nodeagent.agent.update.os_deployments import Os
from nodeagent.agent.update.progress import time_of
from nodeagent.agent.update.run import Limits, Ports, Update, narrate
from nodeagent.core.plan.deployment import unmet
from nodeagent.core.update.events import EventKind
from nodeagent.errors import Refused

__all__ = ["reboot", "wait_for_blockers"]

STILL_VALID: Final = 1.0
"""Seconds for which a permission to reboot needs no second check: users who are warned have longer."""


async def reboot(ports: Ports, limits: Limits, update: Update, *, direct: bool = False) -> None:
    """Returns when logind accepted the reboot; with ``direct``, when systemd did, for a logind that does not answer: it
    cannot report anybody's inhibitors then. Raises ``Refused`` with reason ``RebootBlocked`` if somebody blocks
    it for longer than the settings allow, and they do not let us override it; with ``StagedLost`` if what we staged
    is not there any more; with ``LockedSoftReboot`` if a soft reboot into a locked deployment is prepared
    and cannot be cleared; with ``LeaseLost`` as soon as the lease is lost; and as ``recheck_before_reboot``."""
    committed = asyncio.Event()
    allowed = float("-inf")

    def tell(kind: EventKind, message: str) -> None:
        narrate(ports, update, kind, message, reason="RebootBlocked")

    async def permit() -> None:
        nonlocal allowed
        if ports.clock.monotonic() > allowed + STILL_VALID:
            await recheck_before_reboot(ports, limits, update)
            allowed = ports.clock.monotonic()

    async def confirm() -> None:
        """Right before logind is called: users may have had an hour since the first check."""
        await permit()
        if ports.os is not None and (deployment := await ports.os.unmerged_soft_reboot()):
            why = f"{deployment} is locked and prepared for a soft reboot, which is cleared before the reboot"
            narrate(ports, update, EventKind.WARNING, why, reason="LockedSoftReboot")
            await ports.os.reset_soft_reboot()
        committed.set()
        target, record, os = update.target, update.record, ports.os
        if os is not None and target is not None and not record.reverting and unmet(target, await os.booted()):
            # As late as possible: another program that reboots this host before us must not finalize a deployment
            # whose files nobody has verified.
            await _unlock(os, record.staged)

    async with while_held(ports.coordination, update.record.operation, committed):
        force = direct or await wait_for_blockers(ports, limits, "reboot", "RebootBlocked", tell)
        await permit()  # users are not warned of a reboot that may not happen
        why = update.record.fallback or f"applying {update.record.to_name}"
        await ports.power.reboot(
            f"nodeagent: {why}", warn=limits.warn_users, force=force, confirm=confirm, direct=direct
        )


async def _unlock(os: Os, deployment: str) -> None:
    """Does nothing where the deployment boots next without it: a soft reboot finalizes as any shutdown does, and boots
    nothing else."""
    try:
        await os.unlock(deployment)
    except Refused as error:
        first = next(iter(await os.list()), None)
        if error.reason != "StagedLost" or first is None or first.id != deployment or first.staged:
            raise


async def wait_for_blockers(
    ports: Ports, limits: Limits, what: str, reason: str, tell: Callable[[EventKind, str], None]
) -> bool:
    """True if blockers are there and shall be overridden. Raises ``Refused`` with ``reason`` if they shall not."""
    started = ports.clock.monotonic()
    told = ""
    while blockers := await ports.power.blockers():
        who = "; ".join(f"{b.who} ({b.process}): {b.why}" for b in blockers)
        waited = ports.clock.monotonic() - started
        if waited >= limits.inhibitor_wait:
            if not limits.inhibitor_override:
                raise Refused(f"the {what} is blocked by {who}", reason=reason)
            tell(EventKind.WARNING, f"going on with the {what} in spite of {who}")
            return True
        if who != told:
            until = time_of(ports, started + limits.inhibitor_wait)
            then = "is carried out in spite of it" if limits.inhibitor_override else "is given up"
            tell(EventKind.WAITING, f"until {until} the {what} waits for {who}; then it {then}")
            told = who
        await asyncio.sleep(min(limits.inhibitor_retry, max(0.05, limits.inhibitor_wait - waited)))
    return False
