"""The work of each state of an update: one function for a leg and a phase, which returns the next transition.

A function may be called again after a kill or a fault, so its work is idempotent. None: the host goes down.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from nodeagent.core.check_stage import CheckStage
from nodeagent.core.plan.deployment import OsTarget
from nodeagent.core.plan.steps import DaemonReload
from nodeagent.errors import AgentError, Refused, ServiceUnavailable, Unreconcilable
from nodeagent.reasons import Reason
from nodeagent.update.events import FallbackChosen, RevertStarted, Warned
from nodeagent.update.history.ends import OUTCOMES
from nodeagent.update.history.outcome import UpdateOutcome
from nodeagent.update.legs import (
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
from nodeagent.update.outcomes import abandon, at_end, degraded, safe_parts_first
from nodeagent.update.phase import Phase, State
from nodeagent.update.run import HowEnded, Progress, Run, Takeover, Transition, progress_of
from nodeagent.update.stages import (
    admin_checks,
    admission,
    after_boot,
    bootloader,
    draining,
    greenboot,
    staging,
    verification,
    writing,
)
from nodeagent.update.stages.fallback import begin_planned
from nodeagent.update.stages.os_deployments import HostDeployments, discard_own
from nodeagent.update.stages.reboot import request_reboot
from nodeagent.update.steps import static_pod, unit_watch, units_before
from nodeagent.update.steps.act import act, clear_after_reboot, unit_steps
from nodeagent.update.steps.originals import forget_originals
from nodeagent.update.steps.unit_links import compare_links
from nodeagent.update.steps.units_before import not_expected
from nodeagent.update.wait import retry_on_outage

Work = Callable[[Run], Awaitable[Transition | None]]


# Before the first write.


async def _stage(run: Run) -> Transition:
    os, target = _deployments(run)
    # The slot limits how many nodes load the registry at once. It is not needed after the staging.
    await admission.acquire_staging_slot(run)
    try:
        staged = await staging.stage_unless_newer(run, os, target)
    except AgentError:
        # Other nodes may stage during the pauses of this one.
        await admission.release_staging_slot(run)
        raise
    await admission.release_staging_slot(run)
    if not staged:
        return await superseded(run)
    # Before the lease: a host that waits for hours must not be refused after them.
    await bootloader.check(run, os)
    return Transition(Phase.LEASING)


async def _acquire_lease(run: Run) -> Transition:
    # The staging took minutes or hours. Another config may be desired by now.
    if await run.newer():
        return await superseded(run)
    if (blocked := await _blocked_reboot(run)) is not None and await run.safe_first(run.update, blocked):
        return safe_parts_first(blocked)
    await admission.acquire_all(run)
    if run.ports.os is not None and run.update.target is not None:
        await bootloader.before_disruption(run, run.ports.os)
    if run.update.plan.drain and run.ports.node is not None:
        return Transition(Phase.DRAINING)
    return await _begin_writing(run)


async def _blocked_reboot(run: Run) -> AgentError | None:
    """Return why the reboot of this update would wait, maybe for hours, after all files are written."""
    if not (run.policy.safe_parts and admission.reboots(run.update)):
        return None
    # Without logind no program reports inhibitors, and the reboot has its own way.
    with suppress(AgentError):
        for by in await run.ports.power.blockers():
            return Refused(f"{by.who} ({by.process}) blocks the reboot: {by.why}", reason=Reason.REBOOT_BLOCKED)
    return None


async def _drain(run: Run) -> Transition:
    with retry_on_outage():
        try:
            late = await draining.unless_newer(run, draining.drain_before_writing(run))
        except draining.Superseded:
            return await superseded(run)
    # The drain took time as well, and other actors may have come to the node.
    await admission.recheck_before_write(run)
    if late:
        run.narrate(FallbackChosen, late, reason=Reason.DRAIN_TIMED_OUT)
    # Pods that could not be evicted are stopped by a reboot, not by the restart of a service.
    return await _begin_writing(run, reboot_instead="" if admission.reboots(run.update) else late)


async def _begin_writing(run: Run, *, reboot_instead: str = "") -> Transition:
    # The states before the first write decide later whether a unit that does not run counts as a failure.
    readiness = run.ports.readiness
    # Files alone do not make a node unready, and a kubelet takes some seconds to report that it is.
    acts = any(not isinstance(step, DaemonReload) for step in run.update.acts)
    ready = acts and readiness is not None and await draining.was_ready(readiness)
    before = await units_before.units_before(run.ports, run.update)
    run.update.record = replace(run.record, units_before=replace(before, node_ready=ready))
    return Transition(
        Phase.WRITING, Apply(first_write_boot_id=run.ports.power.boot_id(), reboot_instead=reboot_instead)
    )


async def superseded(run: Run) -> Transition:
    """Discard the staged deployment, and abort the update."""
    if run.ports.os is not None and run.update.target is not None:
        # The staged deployment would otherwise boot with the next reboot of the host.
        try:
            await discard_own(run.ports.os, run.record)
            run.update.change_os(target=None, staged="", staged_boot_id="")
        except AgentError as error:
            # The record still names the deployment, and the loop discards it later.
            run.narrate(Warned, str(error), reason=error.reason)
    return abandon(run, run.update.takeover or Takeover(Reason.SUPERSEDED, "another config is desired now"))


# After the first write.


async def _write(run: Run) -> Transition:
    await writing.write(run)
    return Transition(Phase.ACTING)


async def _act(run: Run) -> Transition:
    update, leg = run.update, run.record.leg
    update.index = len(update.writes)
    if isinstance(leg, Apply) and leg.reboot_instead:
        fallback = fallback_of(leg, leg.reboot_instead)
        return Transition(Phase.REBOOTING, fallback, Reason.DRAIN_TIMED_OUT, leg.reboot_instead)
    if admission.reboots(update):
        await act(run, update.static_pods)
        # A member of etcd that does not work with its new manifest shows before the node goes away.
        await static_pod.watch(run, progress_of(run.ports, update))
        return await begin_planned(run)
    await act(run, unit_steps(update))
    await units_before.start_again(run)
    return Transition(Phase.VERIFYING)


async def _stage_again(run: Run) -> Transition:
    os, target = _deployments(run)
    # An attempt without an answer of the service was not an attempt to stage.
    # The count limits stagings that a power cut ends.
    if not run.update.repeated:
        await after_boot.before_staging_again(run)
    await staging.stage_again(run, os, target)
    return await begin_planned(run)


async def _drain_before_fallback(run: Run) -> Transition:
    record = run.record
    # A refusal leads back to the previous config, as that of etcd does: the host is half-way and cannot wait.
    await admin_checks.check_before(run, CheckStage.BEFORE_DRAIN)
    left = await draining.drain_before_fallback(run)
    return Transition(Phase.REBOOTING, reason=record.reason, message=left or record.message)


async def _verify(run: Run) -> Transition:
    update, os, target = run.update, run.ports.os, run.update.target
    progress = _progress(run)
    if os is not None and target is not None:
        again = await after_boot.check_booted(run, os, target)
        # This comes before the check of units, which may have failed because the merge replaced a file.
        again = again or await after_boot.repair_etc_merge(run)
        if again is not None:
            return again
    await clear_after_reboot(run)
    if isinstance(run.record.leg, Fallback):
        # The action that failed, or the reboot in its place, came before them.
        await act(run, update.static_pods)
    await unit_watch.forget_gone(run)
    if run.record.written.boots:
        await units_before.start_after_boot(run, not_expected(run))
    await _watch_units(run, progress)
    found = await verification.mismatches(run.ports, update.new)
    # Drift that the update left alone is no fault of the update.
    for entry in run.record.drifted:
        found.pop(entry, None)
    wrong, loose = await verification.divide(run.ports, update.new, found)
    verification.report_contested(run.ports, loose, run.record)
    if target is not None:
        wrong |= await verification.os_mismatches(run.ports, update.new)
    if wrong:
        # The history is read by people, so five entries are enough; nodeagent verify shows all.
        some = "; ".join(f"{entry}: {why}" for entry, why in sorted(wrong.items())[:5])
        raise verification.VerifyFailed(f"{len(wrong)} not as desired: {some}")
    await admin_checks.verify(run, progress)
    if os is not None and target is not None:
        try:
            await os.end_count()
        except ServiceUnavailable:
            raise
        except AgentError as error:
            # No fault of the config, and the way back would have to change the same variables.
            return degraded(run, error.message, error.reason)
        await bootloader.after_boot(run, os)
    return _good_end(run)


def _good_end(run: Run) -> Transition:
    """Return the end of a verified update: its config becomes the current one, unless a part of it still waits."""
    record, partial = run.record, run.record.partial
    if partial is not None:
        cause = partial.cause
        return Transition(Phase.RELEASING, end=HowEnded(UpdateOutcome.PARTIAL, cause.reason, cause.message))
    fallback, notes = record.fallback, "; ".join(record.notes)
    outcome = UpdateOutcome.DONE_AFTER_FALLBACK if fallback else UpdateOutcome.DONE
    return Transition(Phase.RELEASING, end=HowEnded(outcome, fallback, notes))


async def _revert(run: Run) -> Transition:
    update, os, leg = run.update, run.ports.os, run.record.leg
    assert isinstance(leg, Revert)
    run.narrate(RevertStarted, _why(run, leg), reason=leg.reason)
    # The old deployment has its own /etc, so it must be booted before its files are restored.
    if os is not None and update.target is not None:
        reboot_first = await after_boot.back_to_old(run, os)
        if reboot_first is not None:
            return reboot_first
    await writing.restore(run.ports, update)
    # After a kill, a restored host is not restored again: an operator may have changed a file since.
    update.change_leg(restored=True)
    if leg.undo_actions and admission.reboots(update):
        await act(run, update.static_pods)
    if update.target is not None:
        # Services that started in this boot may have read the files before they were restored.
        stale = bool(run.record.writes) and leg.first_write_boot_id != run.ports.power.boot_id()
        return Transition(Phase.REBOOTING, reason=Reason.REVERTING) if stale else Transition(Phase.VERIFYING)
    # No action ran with the new files, so none has to run with the old ones.
    if not leg.undo_actions:
        return Transition(Phase.VERIFYING)
    if admission.reboots(update):
        # If the new config took effect by a reboot, the old one needs a reboot to take effect again.
        return Transition(Phase.REBOOTING, reason=Reason.REVERTING) if leg.boots else Transition(Phase.VERIFYING)
    update.index = len(update.writes)
    await act(run, unit_steps(update))
    await units_before.start_again(run)
    return Transition(Phase.VERIFYING)


async def _verify_reverted(run: Run) -> Transition:
    leg, os = run.record.leg, run.ports.os
    assert isinstance(leg, Revert)
    progress = _progress(run)
    if os is not None and run.update.target is not None:
        await after_boot.still_old(run, os)
    await clear_after_reboot(run)
    await unit_watch.forget_gone(run)
    if leg.boots:
        await units_before.start_after_boot(run, not_expected(run))
    await _watch_units(run, progress)
    await admin_checks.verify(run, progress)
    why = "; ".join((_why(run, leg), *await compare_links(run)))
    return Transition(Phase.RELEASING, end=HowEnded(OUTCOMES.get(leg.reason, UpdateOutcome.REVERTED), leg.reason, why))


def _why(run: Run, leg: Revert) -> str:
    if leg.reason in (Reason.SUPERSEDED, Reason.WITHDRAWN):
        return "another config is desired, and the reboot had not begun; the previous files are restored"
    return run.record.lasting.failed_why


def _progress(run: Run) -> Progress:
    progress = progress_of(run.ports, run.update)
    waits = run.ports.os is not None and run.update.target is not None
    # In a repeated phase the status already has the reason of the wait.
    if waits and not run.update.repeated:
        limit = run.ports.clock.monotonic() + run.policy.verify_timeout
        progress("waiting for rpm-ostreed to report what is booted", limit)
    return progress


async def _watch_units(run: Run, progress: Progress) -> None:
    await unit_watch.watch_units(run, progress)
    run.update.progressed()
    await static_pod.watch(run, progress)
    run.update.progressed()
    if admission.reboots(run.update) and run.record.written.boots and not run.record.reverting:
        await greenboot.watch_greenboot(run, progress)
        run.update.progressed()
    if run.ports.readiness is not None and run.record.units_before.node_ready:
        await draining.wait_until_ready(run, run.ports.readiness, progress)
        run.update.progressed()


def _deployments(run: Run) -> tuple[HostDeployments, OsTarget]:
    os, target = run.ports.os, run.update.target
    if os is None or target is None:
        raise Unreconcilable("the deployments of this host cannot be reached any more", reason=Reason.NO_DEPLOYMENTS)
    return os, target


# The end.


async def _release(run: Run) -> Transition:
    # Originals are deleted only after the end: until then a revert may need them.
    if isinstance(run.record.last_leg, Written):
        await forget_originals(run.ports, run.update)
    await admission.release_all(run)
    aborted = run.record.aborted
    takeovers = (Reason.SUPERSEDED, Reason.WITHDRAWN)
    if aborted and aborted.reason in takeovers and not run.update.ended and not await run.superseded(run.update):
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
        (Apply, Phase.REBOOTING): request_reboot,
        (Apply, Phase.VERIFYING): _verify,
        (Fallback, Phase.DRAINING): _drain_before_fallback,
        (Fallback, Phase.REBOOTING): request_reboot,
        (Fallback, Phase.VERIFYING): _verify,
        (Revert, Phase.REVERTING): _revert,
        (Revert, Phase.REBOOTING): request_reboot,
        (Revert, Phase.VERIFYING): _verify_reverted,
        (Abort, Phase.RELEASING): _release,
        (Apply, Phase.RELEASING): _release,
        (Fallback, Phase.RELEASING): _release,
        (Revert, Phase.RELEASING): _release,
        (Unreleased, Phase.RELEASING): _release,
    }
)
