"""How an update ends that does not end well: taken back, given up before anything was written, put off, or degraded.

Each answers where to go next; the record says why, for whoever looks and for the next start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from nodeagent.agent.coordination import LOST
from nodeagent.agent.update.admission import reboots
from nodeagent.agent.update.run import Limits, Next, Ports, Takeover, Update, narrate
from nodeagent.core.report.history import entry_of
from nodeagent.core.update.events import EventKind
from nodeagent.core.update.failure import Answer, after_failure
from nodeagent.core.update.outcome import UpdateOutcome
from nodeagent.core.update.phase import Phase
from nodeagent.core.update.reboot_budget import USED_UP
from nodeagent.core.update.record import Record, at_rest, reject

__all__ = ["INTERRUPTED", "OUTCOMES", "abandon", "at_end", "degraded", "failed", "give_up"]

INTERRUPTED: Final = "Interrupted"
"""Reason of an update that was given up and begins again under the same id, if its config is still desired."""

OUTCOMES: Final = {"Superseded": UpdateOutcome.SUPERSEDED, "Withdrawn": UpdateOutcome.WITHDRAWN}
"""Reasons of an update that was given up because its config is not desired any more, and how its entry says so."""

CANCELED: Final = frozenset({"DrainCanceled", "SlotLost"})
"""What a person did to stop this update. It does not come back by itself."""

BUDGET_SPENT: Final = "RebootBudgetSpent"


async def failed(ports: Ports, limits: Limits, update: Update, message: str, reason: str, *, curable: bool) -> Next:
    """``curable`` as in ``core.update.failure``."""
    record = update.record
    if not record.acted:
        if record.phase is Phase.STAGING:
            # The slot may still be held: the staging was cancelled, or the API server is away. Releasing waits for it.
            return give_up(update, reason, message)
        if record.phase in (Phase.LEASING, Phase.DRAINING):
            canceled = reason in CANCELED
            if reason == "LeaseLost":
                canceled = not await ports.coordination.lease_was_stolen(record.operation)
            if canceled:
                update.record = reject(record, message, ports.clock.now())
            return give_up(update, reason, message)
    if reason in LOST:
        return degraded(ports, update, message, reason)

    def answer_if(may_reboot: bool) -> Answer:
        return after_failure(
            record, curable=curable, planned_reboot=reboots(update), may_reboot=may_reboot, revert=limits.revert
        )

    answer = answer_if(limits.may_reboot)
    if answer is Answer.REBOOT and not record.budget.left:
        # Without a reboot in the plan and none so far, going back needs no reboot either.
        answer, reason = answer_if(False), BUDGET_SPENT
        message = f"{message}; {USED_UP}"
    match answer:
        case Answer.REBOOT:
            update.record = replace(record, fallback=message)
            narrate(ports, update, EventKind.FALLBACK, message, reason=reason)
            drained = ports.node is None or update.plan.drain
            return Next(Phase.REBOOTING if drained else Phase.DRAINING, reason, message)
        case Answer.REVERT:
            failed_now = reject(record, message, ports.clock.now())
            update.record = replace(
                failed_now,
                reverting=True,
                revert_reason=reason,
                done=frozenset(),
                restarting="",
                invocation="",
            )
            return Next(Phase.REVERTING, reason, message)
        case Answer.DEGRADE:
            return degraded(ports, update, message, reason)


def give_up(update: Update, reason: str, message: str) -> Next:
    """Nothing was written; what was taken is given back first."""
    update.record = replace(update.record, given_up=reason, given_up_why=message)
    return Next(Phase.RELEASING, reason, message)


def abandon(update: Update, takeover: Takeover) -> Next:
    """Another config is desired, or none. What was taken is given back first."""
    update.record = replace(update.record, successor=takeover.successor)
    return give_up(update, takeover.reason, takeover.message)


def at_end(ports: Ports, update: Update) -> Next:
    """After everything was given back."""
    record = replace(update.record, unreleased=False)
    if not record.repairs_nothing:
        record = replace(record, cordon="", held="")
    update.record = record
    if record.given_up == INTERRUPTED:
        return Next(Phase.IDLE)
    if record.given_up in OUTCOMES:
        return Next(Phase.IDLE, save=None if update.ended else _with_entry(ports, update))
    if record.given_up:
        return _put_off(ports, record.given_up_why, record.given_up)
    if not record.reverting:
        return Next(Phase.IDLE)
    before = record.from_name or "what it ran before"
    why = f"{record.to_name} was reverted, and the host runs {before}: {record.rejected_why}"
    return Next(Phase.DEGRADED, "Reverted", why)


def degraded(ports: Ports, update: Update, message: str, reason: str) -> Next:
    """Stop half-way, and keep the cordon, the lease and the slot until a later config is applied completely.

    No other holder disrupts a node in this state, and the rollout does not continue on the next node.
    """
    record, now = update.record, ports.clock.now()
    if record.phase is Phase.RELEASING:
        return _unreleased(ports, update, message, reason)
    update.record = reject(record, message, now)
    entry = entry_of(record, update.plan, now, "degraded", reason, message)
    return Next(Phase.DEGRADED, reason, message, save=lambda after: ports.store.close_update(after, entry))


def _unreleased(ports: Ports, update: Update, message: str, reason: str) -> Next:
    """Report the end that the update had before it could not give back what it took. ``Loop.turn`` retries that."""
    record = update.record
    save = _with_entry(ports, update) if record.given_up in OUTCOMES and not update.ended else None
    if record.given_up == INTERRUPTED:  # the next try is an update of its own, since this one has an end now
        record = replace(record, given_up=reason, given_up_why=message)
    good = not record.given_up and not record.reverting
    update.record = replace(record, unreleased=True, unfinished="" if good else record.unfinished)
    return Next(Phase.DEGRADED, reason, message, save=save)


def _with_entry(ports: Ports, update: Update) -> Callable[[Record], Awaitable[None]]:
    """Save the record with the history entry of an update that was superseded or withdrawn."""
    record, now = update.record, ports.clock.now()
    entry = entry_of(record, update.plan, now, OUTCOMES[record.given_up], record.given_up, record.given_up_why)
    return lambda after: ports.store.close_update(after, entry)


def _put_off(ports: Ports, message: str, reason: str) -> Next:
    """Nothing was touched: no history, and the record says only what is still staged and what is not to be tried."""

    async def save(after: Record) -> None:
        await ports.store.save(
            replace(
                at_rest(after),
                phase=after.phase,
                since=after.since,
                boot_id=after.boot_id,
                reason=reason,
                message=message,
                to_name=after.to_name,
            )
        )

    return Next(Phase.DEGRADED, reason, message, save=save)
