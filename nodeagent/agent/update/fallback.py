"""The fallback reboot: a soft one where that is enough, and a full one where a soft one did not help.

The order is the same for each update: at most one soft reboot, then at most one full one, then the revert. A soft
reboot that is not possible becomes a full one, and that is reported with its reason.
"""

from __future__ import annotations

from dataclasses import replace

from nodeagent.agent.update.run import Ports, Run, UpdatePolicy
from nodeagent.core.boot import RebootKind
from nodeagent.core.plan.change import Plan
from nodeagent.core.plan.reboot_kind import FallbackKind, fallback_kind
from nodeagent.core.update.events import FallbackChosen, Warned
from nodeagent.core.update.legs import Fallback, fallback_of
from nodeagent.errors import AgentError
from nodeagent.reasons import Reason

__all__ = ["begin_fallback", "kind_of_fallback", "make_full", "wants_soft"]


async def kind_of_fallback(ports: Ports, policy: UpdatePolicy, plan: Plan) -> FallbackKind:
    """Return the kind of a fallback reboot on this host."""
    found = fallback_kind([planned.change for planned in plan.changes], soft=policy.soft_fallback)
    if found.kind is RebootKind.SOFT:
        try:
            await ports.power.check_soft_reboot()
        except AgentError as error:
            return FallbackKind(RebootKind.FULL, error.message, error.reason)
    return found


async def begin_fallback(run: Run, message: str, reason: str) -> Fallback:
    """Return the leg of the next fallback reboot, and report it. ``message`` and ``reason`` are of the failure."""
    record = run.record
    if isinstance(record.leg, Fallback):
        run.narrate(FallbackChosen, f"after the soft reboot: {message}", reason, RebootKind.FULL)
        return replace(record.leg, kind=RebootKind.FULL, soft_failed=message)
    found = await kind_of_fallback(run.ports, run.policy, run.update.plan)
    run.narrate(FallbackChosen, message, reason, found.kind)
    if found.reason:
        run.narrate(Warned, _full_because(found.why), found.reason)
    return fallback_of(record.written, message, found.kind)


def wants_soft(run: Run) -> bool:
    """Return whether the reboot of this phase is a soft one. The setting may have changed since it was chosen."""
    leg = run.record.leg
    return run.policy.soft_fallback and isinstance(leg, Fallback) and leg.kind is RebootKind.SOFT


async def make_full(run: Run, why: str, reason: Reason) -> None:
    """Make the reboot of this phase a full one, in the record as well."""
    run.update.change_leg(kind=RebootKind.FULL)
    run.narrate(Warned, _full_because(why), reason)
    await run.ports.store.save(run.record)


def _full_because(why: str) -> str:
    return f"the fallback is a full reboot, not a soft one: {why}"
