"""The beginning of an update: from a plan to the record that the phases go on with."""

from __future__ import annotations

from dataclasses import replace

from nodeagent.agent.update import idle
from nodeagent.agent.update.preflight import Desired
from nodeagent.agent.update.run import Ports, Update, context_of, narrate
from nodeagent.core.update.events import PhaseEntered, UpdateStarted
from nodeagent.core.update.legs import Prepare
from nodeagent.core.update.phase import Phase
from nodeagent.core.update.ports.store import ApplyRequest
from nodeagent.core.update.record import Lasting, Record, advance, half_way, interrupted
from nodeagent.errors import Refused
from nodeagent.reasons import Reason

__all__ = ["begin_update", "lasting_of"]


def lasting_of(record: Record, desired: Desired, request: ApplyRequest | None) -> Lasting:
    """Return what lasts when ``desired`` is applied. Raise ``Refused`` (``RolledBack``) if an operator rolled back from
    it and there is no request."""
    kept = record.lasting.without(desired.source.digest, desired.meaning)
    if request is not None and request.avoid:
        kept = replace(kept, rolled_back_digest=request.avoid, rolled_back_meaning=request.avoid_meaning)
    if kept.rolled_back_digest == desired.source.digest or kept.rolled_back_meaning == desired.meaning:
        if request is None:
            name = desired.config.name
            raise Refused(
                f"{name} was rolled back by an operator; it must be re-applied explicitly", reason=Reason.ROLLED_BACK
            )
        kept = replace(kept, rolled_back_digest="", rolled_back_meaning="")
    return kept


async def begin_update(ports: Ports, record: Record, update: Update, lasting: Lasting) -> None:
    """Save the record of ``update``, which follows ``record``, and report the beginning."""
    # The same update begins again.
    if interrupted(record):
        update.record = replace(update.record, update_id=record.update_id, started=record.started, trail=record.trail)
    if half_way(record):
        held = await idle.still_held(ports, record) or update.record.update_id
        left = idle.left_half_way(record)
        update.record = replace(update.record, held=held, cordon=record.cordon, unfinished=left)
    update.change_os(staged=await idle.leftover(ports, record, update))
    update.record = advance(
        replace(update.record, lasting=lasting),
        Phase.LEASING if update.target is None else Phase.STAGING,
        Prepare(),
        now=ports.clock.now(),
        boot_id=ports.power.boot_id(),
    )
    entered = PhaseEntered(context_of(ports, update.record, update.record.phase))
    update.note(ports, entered)
    await ports.store.begin(update.record)
    actions = ", ".join(f"{a.type} {a.unit}".strip() for a in update.plan.actions) or "no actions"
    narrate(ports, update.record, UpdateStarted, actions, len(update.writes))
    ports.reporter.emit(entered)
