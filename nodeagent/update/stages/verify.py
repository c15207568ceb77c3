# SPDX-License-Identifier: Apache-2.0
"""Verify that the host has the config and is well, after an update and after a revert."""

from __future__ import annotations

import asyncio
from typing import Final

from nodeagent import domains
from nodeagent.core.plan.domain import NODE, UnitFailure
from nodeagent.errors import AgentError, Refused, Retryable, ServiceUnavailable, Unreachable
from nodeagent.reasons import Reason
from nodeagent.update.history.ends import OUTCOMES
from nodeagent.update.history.outcome import UpdateOutcome
from nodeagent.update.ports.coordination import NodeReadiness
from nodeagent.update.ports.events import Warned
from nodeagent.update.run import Progress, Run, progress_of
from nodeagent.update.stages import after_boot, compare
from nodeagent.update.stages.compare import VerifyFailed
from nodeagent.update.stages.failure import degraded
from nodeagent.update.states import Fallback, HowEnded, Phase, Revert, Transition
from nodeagent.update.steps import static_pod, unit_watch, units_before
from nodeagent.update.steps.act import act, clear_after_reboot
from nodeagent.update.steps.step import keys_of
from nodeagent.update.steps.unit_links import compare_links
from nodeagent.update.steps.unit_watch import RestartedUnits
from nodeagent.update.steps.units_before import not_expected

# Seconds between two reads of the Node: a kubelet reports every ten.
PERIOD: Final = 2.0


async def do(run: Run) -> Transition:
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
    differences = await compare.mismatches(run.ports, update.new)
    # Drift that the update left alone is no fault of the update.
    for entry in run.record.drifted:
        differences.pop(entry, None)
    wrong, loose = await compare.divide(run.ports, update.new, differences)
    compare.report_contested(run.ports, loose, run.record)
    if target is not None:
        wrong |= await compare.os_mismatches(run.ports, update.new)
    if wrong:
        # The history is read by people, so five entries are enough; nodeagent verify shows all.
        some = "; ".join(f"{entry}: {difference}" for entry, difference in sorted(wrong.items())[:5])
        raise compare.VerifyFailed(f"{len(wrong)} not as desired: {some}")
    for guard in run.ports.guards:
        await guard.verify(run, progress)
    if os is not None and target is not None:
        try:
            await os.end_new_os()
        except ServiceUnavailable:
            raise
        except AgentError as error:
            # No fault of the config, and the way back would have to change the same variables.
            return degraded(run, error.message, error.reason)
    for guard in run.ports.guards:
        await guard.before_good_end(run)
    for guard in run.ports.guards:
        await guard.after_verification(run)
    return _good_end(run)


def _good_end(run: Run) -> Transition:
    """Return the end of a verified update: its config becomes the current one, unless a part of it still waits."""
    record, partial = run.record, run.record.partial
    if partial is not None and record.reboot is None:
        cause = partial.cause
        return Transition(Phase.RELEASING, end=HowEnded(UpdateOutcome.PARTIAL, cause.reason, cause.message))
    fallback, notes = record.fallback, "; ".join(record.notes)
    outcome = UpdateOutcome.DONE_AFTER_FALLBACK if fallback else UpdateOutcome.DONE
    return Transition(Phase.RELEASING, end=HowEnded(outcome, fallback, notes))


async def undo(run: Run) -> Transition:
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
    for guard in run.ports.guards:
        await guard.verify(run, progress)
    message = "; ".join((why_reverted(run, leg), *await compare_links(run)))
    return Transition(
        Phase.RELEASING, end=HowEnded(OUTCOMES.get(leg.reason, UpdateOutcome.REVERTED), leg.reason, message)
    )


def why_reverted(run: Run, leg: Revert) -> str:
    if leg.reason in (Reason.SUPERSEDED, Reason.WITHDRAWN):
        return "another config is desired, and the reboot had not begun; the previous files are restored"
    return run.record.lasting.failed_why


def _progress(run: Run) -> Progress:
    progress = progress_of(run.ports, run.update)
    waits = run.ports.os is not None and run.update.target is not None
    # In a repeated phase the status already has the reason of the wait.
    if waits and not run.update.repeated:
        limit = run.ports.clock.monotonic() + run.policy.verify_timeout
        progress("waiting for what serves the deployments to report what is booted", limit)
    return progress


async def _watch_units(run: Run, progress: Progress) -> None:
    await unit_watch.watch_units(run, progress)
    run.update.progressed()
    if run.update.static_pods:
        await static_pod.watch(run, progress)
        run.update.progressed()
    if run.update.reboots and run.record.written.boots and not run.record.reverting:
        for guard in run.ports.guards:
            await guard.verify_boot(run, progress)
        run.update.progressed()
    if run.ports.readiness is not None and run.record.units_before.node_ready:
        await _wait_until_ready(run, run.ports.readiness, progress)
        run.update.progressed()


async def _wait_until_ready(run: Run, readiness: NodeReadiness, progress: Progress) -> None:
    """Return when the cluster sees the node ready again, by a report from after the last action.

    The next node of a pool must not be disrupted while pods cannot run on this one. A node that was not ready before
    the update is not waited for: the update may be what repairs it.

    Raises ``VerifyFailed`` after the time for verification. If the API server does not answer by then, the update
    continues: that is no fault of the config, and nothing can be released without an answer either.
    """
    keys = keys_of(run.update)
    outdated = domains.outdated(keys, reverted=run.record.reverting)
    kept_back = await run.ports.health.kept_back(keys)
    up = await RestartedUnits.of(run)
    clock, timeout = run.ports.clock.monotonic, run.policy.verify_timeout
    deadline = clock() + timeout
    # Since when the API server does not answer. That time does not count against the node.
    gone: float | None = None
    while True:
        away: AgentError | None = None
        try:
            # A heartbeat from before this phase is one of the kubelet before its restart.
            condition = await readiness.unready(run.record.since, outdated, kept_back)
        except (Unreachable, Retryable) as error:
            away, condition = error, error.message
        except Refused as error:
            # The Node was deleted, which no config does.
            away, deadline, condition = error, clock(), error.message
        if not condition:
            return
        if isinstance(away, Unreachable | Retryable):
            gone = clock() if gone is None else gone
        elif gone is not None:
            deadline, gone = deadline + clock() - gone, None
            run.update.progressed()
        if clock() >= (deadline if gone is None else gone + timeout):
            break
        progress(f"the node is not ready: {condition}; waiting for it", deadline)
        await asyncio.sleep(PERIOD)
        # A kubelet may end later than within the settle time, and is restarted by systemd without end.
        await up.check()
    if away is None:
        message = f"the node is not ready after {timeout:.0f} s: {condition}"
        helps = domains.curable(UnitFailure(NODE, "", keys))
        raise VerifyFailed(message, reason=Reason.NODE_NOT_READY, curable=helps)
    run.narrate(Warned, f"continuing: {condition}", reason=away.reason)
