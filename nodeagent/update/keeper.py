# SPDX-License-Identifier: Apache-2.0
"""The keeper of the record: the only module that moves it to another state, and that saves one at rest.

With each transition it makes what follows from it: the rejection of the config, the entry in the history, the
promotion of a verified config, the trail and the events. The record is on the disk before the next stage starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from nodeagent.core.display import displayable
from nodeagent.core.plan.change import ActionType, Plan
from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason
from nodeagent.update.history import trail_fold
from nodeagent.update.history.ends import OUTCOMES, finish, finish_update
from nodeagent.update.history.entry import entry_of, seconds_between, with_trail
from nodeagent.update.history.lasting import Lasting, left_by
from nodeagent.update.history.outcome import VERIFIED
from nodeagent.update.history.trail import Trail, elapsed, trail_to_dict
from nodeagent.update.ports.events import (
    ConfigRefused,
    HostDegraded,
    PhaseEntered,
    SafePartsApplied,
    UpdateDone,
    UpdateStarted,
)
from nodeagent.update.record import Record, advance, after_boot, at_rest, half_way, reject
from nodeagent.update.run import Ports, Takeover, Update, context_of, moment, narrate
from nodeagent.update.states import (
    INTERRUPTED,
    OTHER_FIRST,
    Apply,
    Fallback,
    Phase,
    Prepare,
    Rest,
    Transition,
    Unreleased,
)


@dataclass(eq=False)
class Keeper:
    """``drain_timeout`` is the setting, in seconds."""

    ports: Ports
    drain_timeout: Callable[[], float]
    # The time since which this process counts for the reboot budget.
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.ports.clock.monotonic()

    async def enter(self, update: Update, to: Transition) -> None:
        """Move the record to the next phase, and save it before the phase starts. Raises ``IllegalTransition``."""
        before = update.record
        if to.rejects and before.reboot is not None:
            # Before its effect: a request that failed, or that an operator cancelled, is not tried again.
            await self.ports.reboot_requests.drop(before.reboot.id, to.rejects)
        # A config that was in effect already is rejected only if the host is not well with it.
        if to.rejects and (before.reboot is None or to.phase is Phase.DEGRADED):
            # An operator cancelled the update, or else it failed here.
            cancelled = to.reason if to.reason == Reason.CANCELLED else ""
            before = reject(before, to.rejects, self.ports.clock.now(), reason=cancelled)
        record = self._advanced(before, to)
        # The controller of the cluster gives a cordoned node no other config, so the message says how to uncordon it.
        if to.phase is Phase.DEGRADED and record.cordon and self.ports.node is not None:
            advice = await self.ports.node.advice()
            to = replace(to, message="; ".join(filter(None, (to.message, advice))))
            record = replace(record, message=to.message)
        kind = HostDegraded if to.phase is Phase.DEGRADED else PhaseEntered
        event = kind(context_of(self.ports, record, record.phase), to.message, to.reason)
        trail = _trail(self.ports, before, event)
        if record.update_id:
            record = replace(record, trail=trail)
        # The record is on the disk before the next phase starts. After a kill, the phase runs again.
        await _save(self.ports, record, update.plan, before, to, trail)
        # Until the release, a client that waits for the update would see an end although the node is still held.
        if before.phase is Phase.RELEASING and isinstance(before.leg, Apply | Fallback):
            _report_done(self.ports, update)
        update.moved(record)
        self.ports.reporter.emit(event)
        if isinstance(before.leg, Unreleased):
            # The end of this update was reported before.
            return
        again = before.aborted is not None and before.aborted.reason in (INTERRUPTED, OTHER_FIRST)
        if to.phase is Phase.DEGRADED or update.ended or (to.phase is Phase.IDLE and not again):
            await finish_update(self.ports, before, update.plan, to)

    async def enter_after_boot(self, update: Update, phase: Phase) -> None:
        """Continue an update in another boot. Raises ``IllegalTransition``."""
        now, boot_id = self.ports.clock.now(), self.ports.power.boot_id()
        update.moved(after_boot(update.record, phase, now=now, boot_id=boot_id))
        entered = PhaseEntered(context_of(self.ports, update.record, phase))
        update.note(self.ports, entered)
        # The new boot id is saved before the phase runs. A second crash in this boot then counts as one in this boot.
        await update.save(self.ports)
        self.ports.reporter.emit(entered)

    def _advanced(self, before: Record, to: Transition) -> Record:
        clock, boot_id = self.ports.clock, self.ports.power.boot_id()
        leg = before.leg if to.leg is None else to.leg
        record = advance(
            before,
            to.phase,
            leg,
            now=clock.now(),
            boot_id=boot_id,
            reason=to.reason,
            message=to.message,
        )
        # The budget counts time on the steady clock of each boot, so a change of the wall clock does not reset it.
        budget = record.lasting.budget.counted(boot_id, clock.monotonic(), self._began)
        repeated = isinstance(leg, Apply) and leg.soft_failed
        if to.phase is Phase.REBOOTING and (isinstance(leg, Fallback) or repeated):
            budget = budget.spend()
        record = replace(record, lasting=replace(record.lasting, budget=budget))
        if to.phase is Phase.DRAINING:
            until = clock.monotonic() + self.drain_timeout()
            # The cordon is recorded before it is made. After a kill, the node is uncordoned even if the cordon was not
            # made.
            record = replace(record, cordon=record.cordon or record.operation, drain_until=until)
        return record


async def begin(ports: Ports, update: Update, lasting: Lasting) -> None:
    """Save the record of an update that begins, and report it."""
    phase = Phase.LEASING if update.target is None else Phase.STAGING
    update.mark(lasting=lasting)
    now, boot_id = ports.clock.now(), ports.power.boot_id()
    update.moved(advance(update.record, phase, Prepare(), now=now, boot_id=boot_id))
    entered = PhaseEntered(context_of(ports, update.record, update.record.phase))
    update.note(ports, entered)
    await ports.store.begin(update.record)
    needed = [action for action in update.plan.actions if action.type is not ActionType.NONE]
    actions = ", ".join(f"{action.type} {action.unit}".strip() for action in needed) or "no actions"
    if update.record.partial is not None:
        actions = f"only what needs no disruption: {actions}"
    narrate(ports, update.record, UpdateStarted, actions, len(update.writes))
    ports.reporter.emit(entered)


async def refuse(ports: Ports, record: Record, reason: AnyReason, message: str) -> Record:
    """Save and report that the desired config is refused. The host is unchanged."""
    now, boot_id = ports.clock.now(), ports.power.boot_id()
    refused = advance(record, Phase.DEGRADED, Rest(), now=now, boot_id=boot_id, reason=reason, message=message)
    # A record that is half-way stays: it says that the disk holds parts of two configs.
    if not (half_way(record) and record.update_id):
        refused = replace(refused, update_id="")
        await ports.store.save(refused)
    narrate(ports, refused, ConfigRefused, message, reason)
    return refused


async def rest(ports: Ports, record: Record) -> None:
    """Save and report that the host is as desired."""
    record = advance(record, Phase.IDLE, Rest(), now=ports.clock.now(), boot_id=ports.power.boot_id())
    await ports.store.save(record)
    narrate(ports, record, PhaseEntered)


async def close(ports: Ports, record: Record, plan: Plan, takeover: Takeover) -> Record:
    """End an update that was interrupted before anything was written, and does not begin again."""
    now = ports.clock.now()
    outcome, successor = OUTCOMES[takeover.reason], takeover.successor
    message = f"{takeover.message}; {left_by(record.lasting.partial, record.to_digest)}"
    entry = entry_of(record, plan, now, outcome, takeover.reason, message, successor=successor)
    rest = replace(at_rest(record), since=now, boot_id=ports.power.boot_id())
    # The store comes first: after a kill a client may miss the event, but the history never lacks the update.
    await ports.store.close_update(rest, entry)
    narrate(ports, rest, PhaseEntered)
    finish(ports.reporter, entry)
    return rest


async def save(ports: Ports, record: Record) -> Record:
    """Save the record of a host on which no update is under way, or of one whose process ends."""
    await ports.store.save(record)
    return record


def _trail(ports: Ports, before: Record, event: PhaseEntered | HostDegraded) -> Trail:
    """Return the trail after a transition. At rest, the last phase is over and no other one begins."""
    now = moment(ports)
    if event.about.phase in (Phase.IDLE, Phase.DEGRADED):
        return trail_fold.closed(before.trail, now)
    return trail_fold.fold(before.trail, displayable(event), now)


async def _save(ports: Ports, record: Record, plan: Plan, before: Record, to: Transition, trail: Trail) -> None:
    """Save the record, and with the end of the update its entry in the history. A verified config is promoted."""
    store, end = ports.store, to.end
    # The end of this update is in the history already.
    if isinstance(before.leg, Unreleased):
        end = None
    if end is not None:
        now = ports.clock.now()
        entry = with_trail(entry_of(before, plan, now, end.outcome, end.reason, end.message), trail)
        # The config of a requested reboot is in effect already, and may be one of the safe parts.
        if end.outcome in VERIFIED and before.reboot is None:
            await store.promote(record, record.to_digest, entry)
        else:
            await store.close_update(record, entry)
    elif to.phase in (Phase.IDLE, Phase.DEGRADED):
        # The end of the release is known only after its entry was written.
        await store.end_trail(record, before.update_id, trail_to_dict(trail))
    else:
        await store.save(record)


def _report_done(ports: Ports, update: Update) -> None:
    record, seconds = update.record, elapsed(update.record.trail)
    if (partial := record.partial) is not None:
        update.narrate(ports, SafePartsApplied, partial)
        return
    # A power cut may have taken the place of a soft reboot.
    softly = 0 < record.written.soft_reboots == record.written.requested_reboots
    after = (f"after a {'soft ' * softly}fallback reboot, because {record.fallback}",) if record.fallback else ()
    update.narrate(
        ports,
        UpdateDone,
        "; ".join((*after, *record.notes)),
        seconds=seconds_between(record.started, ports.clock.now()) if seconds is None else seconds,
        reboots=record.written.requested_reboots,
        digest=record.to_digest,
    )
