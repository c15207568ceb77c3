"""The work of each state of an update. Each function does the work of one leg in one phase, and returns where to go.

A function may be called again after a kill or a fault: everything it does gives the same result when it is done twice.
``reboot`` has the work of the phase Rebooting.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from nodeagent.agent.update import (
    actions,
    admission,
    after_boot,
    boot_health,
    contested,
    draining,
    staging,
    verification,
    writing,
)
from nodeagent.agent.update.os_deployments import Os, discard_ours
from nodeagent.agent.update.outcomes import OUTCOMES, abandon, at_end
from nodeagent.agent.update.progress import Progress, progress_of
from nodeagent.agent.update.run import Close, Promote, Run, Takeover, Transition
from nodeagent.core.plan.deployment import OsTarget
from nodeagent.core.report.history import entry_of
from nodeagent.core.update.events import EventKind
from nodeagent.core.update.legs import (
    INTERRUPTED,
    Abort,
    Apply,
    Fallback,
    Prepare,
    Revert,
    Unreleased,
    Written,
    fallback_of,
)
from nodeagent.core.update.outcome import UpdateOutcome
from nodeagent.core.update.phase import Phase
from nodeagent.core.update.transitions import State
from nodeagent.errors import AgentError, Terminal
from nodeagent.reasons import Reason

__all__ = ["PHASES", "Work"]

Work = Callable[[Run], Awaitable[Transition]]


# Before the first write.


async def _stage(run: Run) -> Transition:
    os, target = _deployments(run)
    await admission.acquire_staging_slot(run.ports, run.update)
    try:
        staged = await staging.stage_unless_newer(run, os, target)
    except AgentError:
        await admission.release_staging_slot(run.ports, run.update)
        raise
    await admission.release_staging_slot(run.ports, run.update)
    return Transition(Phase.LEASING) if staged else await superseded(run)


async def _acquire_lease(run: Run) -> Transition:
    if await run.newer():
        return await superseded(run)
    await admission.acquire_all(run.ports, run.policy, run.update)
    if run.update.plan.drain and run.ports.node is not None:
        return Transition(Phase.DRAINING)
    return await _begin_writing(run)


async def _drain(run: Run) -> Transition:
    with admission.retry_on_outage():
        try:
            late = await draining.unless_newer(run, draining.drain_before_writing(run))
        except draining.Superseded:
            return await superseded(run)
    await admission.recheck_before_write(run.ports, run.update)
    if late:
        run.narrate(EventKind.FALLBACK, late, reason=Reason.DRAIN_TIMED_OUT)
    # Pods that could not be evicted go down with the host, not with a service.
    return await _begin_writing(run, reboot_instead="" if admission.reboots(run.update) else late)


async def _begin_writing(run: Run, *, reboot_instead: str = "") -> Transition:
    states = await actions.states_before(run.ports, run.update)
    before = replace(run.record.units_before, states=states)
    run.update.record = replace(run.record, units_before=before)
    return Transition(
        Phase.WRITING, Apply(first_write_boot_id=run.ports.power.boot_id(), reboot_instead=reboot_instead)
    )


async def superseded(run: Run) -> Transition:
    """Discard the staged deployment, and abort the update."""
    if run.ports.os is not None and run.update.target is not None:
        try:
            await discard_ours(run.ports.os, run.record)
            run.update.change_os(target=None, staged="", staged_boot_id="")
        except AgentError as error:  # the record at rest keeps what is ours; the loop discards it later
            run.narrate(EventKind.WARNING, str(error), reason=error.reason)
    return abandon(run.update.takeover or Takeover(Reason.SUPERSEDED, "another config is desired now"))


# After it.


async def _write(run: Run) -> Transition:
    await writing.write(run.ports, run.update)
    return Transition(Phase.ACTING)


async def _act(run: Run) -> Transition:
    update, leg = run.update, run.record.leg
    update.index = len(update.writes)
    if isinstance(leg, Apply) and leg.reboot_instead:
        fallback = fallback_of(leg, leg.reboot_instead)
        return Transition(Phase.REBOOTING, fallback, Reason.DRAIN_TIMED_OUT, leg.reboot_instead)
    await actions.act(run, actions.unit_steps(update))
    if admission.reboots(update):
        await boot_health.note_units(run)
        return Transition(Phase.REBOOTING, reason=Reason.PLANNED, message=f"rebooting into {run.record.to_name}")
    return Transition(Phase.VERIFYING)


async def _stage_again(run: Run) -> Transition:
    os, target = _deployments(run)
    if not run.update.repeated:  # an attempt without an answer of the service was no attempt to stage
        await after_boot.before_staging_again(run)
    await staging.stage_again(run, os, target)
    return Transition(Phase.REBOOTING, reason=Reason.PLANNED, message=f"rebooting into {run.record.to_name}")


async def _drain_before_fallback(run: Run) -> Transition:
    record = run.record
    left = await draining.drain_before_fallback(run)
    return Transition(Phase.REBOOTING, reason=record.reason, message=left or record.message)


async def _verify(run: Run) -> Transition:
    update, os, target = run.update, run.ports.os, run.update.target
    progress = _progress(run)
    if os is not None and target is not None:
        again = await after_boot.check_booted(run, os, target)
        # Before units are judged: they may have failed for the want of what the merge took back.
        again = again or await after_boot.repair_etc_merge(run)
        if again is not None:
            return again
    await _watch_units(run, progress)
    wrong, loose = await contested.divide(run.ports, update.new, await verification.mismatches(run.ports, update.new))
    contested.report(run.ports, loose, run.record)
    if target is not None:
        wrong |= await verification.os_mismatches(run.ports, update.new)
    if wrong:
        some = "; ".join(f"{entry}: {why}" for entry, why in sorted(wrong.items())[:5])
        raise verification.VerifyFailed(f"{len(wrong)} not as desired: {some}")
    fallback = run.record.fallback
    outcome = UpdateOutcome.DONE_AFTER_FALLBACK if fallback else UpdateOutcome.DONE
    now, notes = run.ports.clock.now(), "; ".join(run.record.notes)
    return Transition(Phase.RELEASING, commit=Promote(entry_of(run.record, update.plan, now, outcome, fallback, notes)))


async def _revert(run: Run) -> Transition:
    update, os, leg = run.update, run.ports.os, run.record.leg
    assert isinstance(leg, Revert)
    run.narrate(EventKind.REVERTING, run.record.lasting.failed_why, reason=leg.reason)
    if os is not None and update.target is not None:
        reboot_first = await after_boot.back_to_old(run, os)
        if reboot_first is not None:
            return reboot_first
    await writing.restore(run.ports, update)
    update.change_leg(restored=True)
    if update.target is not None:
        # Services that started in this boot may have read what was just restored.
        stale = bool(run.record.writes) and leg.first_write_boot_id != run.ports.power.boot_id()
        return Transition(Phase.REBOOTING, reason=Reason.REVERTING) if stale else Transition(Phase.VERIFYING)
    if not leg.undo_actions:
        return Transition(Phase.VERIFYING)
    if admission.reboots(update):
        # What the new config needed a reboot for, the old one needs it for as well, if there was one.
        return Transition(Phase.REBOOTING, reason=Reason.REVERTING) if leg.reboots else Transition(Phase.VERIFYING)
    update.index = len(update.writes)
    await actions.act(run, actions.unit_steps(update))
    return Transition(Phase.VERIFYING)


async def _verify_reverted(run: Run) -> Transition:
    record, leg, os = run.record, run.record.leg, run.ports.os
    assert isinstance(leg, Revert)
    progress = _progress(run)
    if os is not None and run.update.target is not None:
        await after_boot.still_old(run, os)
    await _watch_units(run, progress)
    now, why = run.ports.clock.now(), record.lasting.failed_why
    entry = entry_of(record, run.update.plan, now, UpdateOutcome.REVERTED, leg.reason, why)
    return Transition(Phase.RELEASING, commit=Close(entry))


def _progress(run: Run) -> Progress:
    progress = progress_of(run.ports, run.update)
    waits = run.ports.os is not None and run.update.target is not None
    if waits and not run.update.repeated:  # then the status says why it waits
        limit = run.ports.clock.monotonic() + run.policy.verify_timeout
        progress("waiting for rpm-ostreed to report what is booted", limit)
    return progress


async def _watch_units(run: Run, progress: Progress) -> None:
    await verification.watch_units(run, progress)
    if admission.reboots(run.update) and run.record.written.reboots:
        await boot_health.watch_boot(run, progress)


def _deployments(run: Run) -> tuple[Os, OsTarget]:
    os, target = run.ports.os, run.update.target
    if os is None or target is None:
        raise Terminal("the deployments of this host cannot be reached any more", reason=Reason.NO_DEPLOYMENTS)
    return os, target


# The end.


async def _release(run: Run) -> Transition:
    if isinstance(run.record.last_leg, Written):
        await writing.forget_originals(run.ports, run.update)
    await admission.release_all(run.ports, run.update)
    aborted = run.record.aborted
    if aborted and aborted.reason in OUTCOMES and not run.update.ended and not await run.superseded(run.update):
        # Its config is desired again: the update begins again, and a client that waits for it gets that end.
        run.update.change_leg(reason=INTERRUPTED, successor="")
    return at_end(run)


PHASES: Final[Mapping[State, Work]] = MappingProxyType(
    {
        (Prepare, Phase.STAGING): _stage,
        (Prepare, Phase.LEASING): _acquire_lease,
        (Prepare, Phase.DRAINING): _drain,
        (Apply, Phase.WRITING): _write,
        (Apply, Phase.ACTING): _act,
        (Apply, Phase.STAGING): _stage_again,
        (Apply, Phase.VERIFYING): _verify,
        (Fallback, Phase.DRAINING): _drain_before_fallback,
        (Fallback, Phase.VERIFYING): _verify,
        (Revert, Phase.REVERTING): _revert,
        (Revert, Phase.VERIFYING): _verify_reverted,
        (Abort, Phase.RELEASING): _release,
        (Apply, Phase.RELEASING): _release,
        (Fallback, Phase.RELEASING): _release,
        (Revert, Phase.RELEASING): _release,
        (Unreleased, Phase.RELEASING): _release,
    }
)
