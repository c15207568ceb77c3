"""Rebooting the host, last and alone: other people's block inhibitors first, then what is staged is unlocked, then
logind, then we wait to die."""

from __future__ import annotations

import asyncio

from nodeagent.agent.context import Limits, Ports, Update, narrate
from nodeagent.core.deployment import unmet
from nodeagent.core.events import EventKind
from nodeagent.errors import Refused

__all__ = ["reboot"]


async def reboot(ports: Ports, limits: Limits, update: Update) -> None:
    """Returns when logind accepted the reboot. Raises ``Refused`` with reason ``RebootBlocked`` if somebody blocks
    it for longer than the settings allow, and they do not let us override it; with ``StagedLost`` if what we staged
    is not there any more."""
    force = await _wait_for_blockers(ports, limits, update)
    await ports.lease.check(update.record.update_id)
    target, record = update.target, update.record
    if ports.os is not None and target is not None and not record.reverting and unmet(target, await ports.os.booted()):
        # As late as possible: whoever reboots this host before us must not finalize what nobody has verified files for.
        await ports.os.unlock(record.staged)
    why = update.record.fallback or f"applying {update.record.to_name}"
    await ports.power.reboot(f"nodeagent: {why}", warn=limits.warn_users, force=force)


async def _wait_for_blockers(ports: Ports, limits: Limits, update: Update) -> bool:
    """True if blockers are still there and shall be overridden."""
    started = ports.clock.monotonic()
    told = ""
    while blockers := await ports.power.blockers():
        who = "; ".join(f"{b.who} ({b.process}): {b.why}" for b in blockers)
        waited = ports.clock.monotonic() - started
        if waited >= limits.inhibitor_wait:
            if not limits.inhibitor_override:
                raise Refused(f"the reboot is blocked by {who}", reason="RebootBlocked")
            narrate(ports, update, EventKind.WARNING, f"rebooting in spite of {who}", reason="RebootBlocked")
            return True
        if who != told:
            narrate(ports, update, EventKind.WAITING, f"the reboot waits for {who}", reason="RebootBlocked")
            told = who
        await asyncio.sleep(min(limits.inhibitor_retry, max(0.05, limits.inhibitor_wait - waited)))
    return False
