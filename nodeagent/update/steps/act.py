# SPDX-License-Identifier: Apache-2.0
"""Do the actions of a plan: daemon-reload, stops, reloads and restarts, each once, each with a deadline.

After a crash, or when systemd did not answer, an action that was started and not marked as done runs again: a second
reload is harmless, a missing one is not. A second restart harms some services, so the record has the invocation ID from
before the first attempt, which shows whether the restart took place.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, assert_never

from nodeagent.core.plan.steps import (
    ActStep,
    ClearState,
    DaemonReload,
    Reboot,
    ReloadUnit,
    RestartStaticPod,
    RestartUnit,
    StartUnit,
    StopUnit,
    describe,
    step_id,
    step_unit,
)
from nodeagent.errors import AgentError, ServiceUnavailable
from nodeagent.reasons import Reason
from nodeagent.update.run import Run, Update
from nodeagent.update.stages.admission import check_still_held
from nodeagent.update.states import Revert
from nodeagent.update.steps.clear_state import ClearStateWork
from nodeagent.update.steps.daemon_reload import DaemonReloadWork
from nodeagent.update.steps.reload import ReloadWork
from nodeagent.update.steps.restart import RestartWork, StartWork, in_start_order, in_transactions
from nodeagent.update.steps.static_pod import RestartStaticPodWork
from nodeagent.update.steps.step import JOB_REASONS, ActionFailed, StepInProgress, StepWork, curable
from nodeagent.update.steps.stop import StopWork
from nodeagent.update.steps.unit_verdict import must_run, restarting

# Seconds by which the limit of the call exceeds that of the job, which cancels the job and must end first.
JOB_HEADROOM = 5.0

# Seconds for the services of the host to settle after one of them was away.
AFTER_OUTAGE = 5.0


async def act(run: Run, steps: Sequence[ActStep]) -> None:
    """Do the steps that are not done. Raise ``ActionFailed`` at the first that fails or is late."""
    async for planned in _in_order(run, steps):
        with StepInProgress(run, planned) as step:
            if step.ident in run.record.written.done:
                continue
            work = await _due(run, planned, steps)
            step.becomes(work.step)
            # The lease must outlast the action, because an action is not interrupted when the lease ends.
            await check_still_held(run, need=run.policy.action_timeout)
            if obstacle := await work.applies():
                await _mark_done(run, step, skipped=True)
                step.skipped(obstacle)
                continue
            await work.before()
            step.started()
            # If the store accepts no more writes, the update stops here. After the action, each start would repeat it.
            await run.save()
            try:
                condition = await _do_excused(work, step)
            except ServiceUnavailable:
                raise
            except AgentError as error:
                await _judge_failure(work, step, error)
            else:
                await _end(work, step, condition)


def unit_steps(update: Update) -> tuple[ActStep, ...]:
    return tuple(step for step in update.acts if not isinstance(step, Reboot))


async def clear_before_reboot(run: Run) -> None:
    """Remove the state that the reboot would keep. Its units do not run from here on, so this is done last.

    What fails is left to ``clear_after_reboot``: the reboot ends a unit that does not stop.
    """
    clear = _clear_steps(run)
    with suppress(ActionFailed):
        await act(run, clear)
        # The boot starts them.
        restarts = {step_id(RestartUnit(step.unit)) for step in clear}
        run.update.change_leg(done=run.record.written.done | restarts)


async def clear_after_reboot(run: Run) -> None:
    """Remove the state that is left, and start its units: the reboot came early, or a revert needed none."""
    clear = _clear_steps(run)
    await act(run, (*clear, *(RestartUnit(step.unit) for step in clear)))


def _clear_steps(run: Run) -> tuple[ClearState, ...]:
    # Without an action with the new config there is no state of it.
    if isinstance(run.record.leg, Revert) and not run.record.leg.undo_actions:
        return ()
    return tuple(step for step in run.update.acts if isinstance(step, ClearState))


async def _in_order(run: Run, steps: Sequence[ActStep]) -> AsyncIterator[ActStep]:
    left = list(steps)
    while left and not isinstance(left[0], RestartUnit | StartUnit):
        yield left.pop(0)
    if left:
        # After the daemon-reload, which may change what requires what.
        for step in await in_start_order(run.ports, await in_transactions(run.ports, left)):
            yield step


async def _due(run: Run, planned: ActStep, steps: Sequence[ActStep]) -> StepWork[Any]:
    """Return the action for a planned step. What it becomes depends on the state of the unit, which a kill may have
    changed."""
    ident = step_id(planned)
    step = await _work_of(run, planned, ident, steps).due()
    return _work_of(run, step, ident, steps)


def _work_of(run: Run, step: ActStep, ident: str, steps: Sequence[ActStep]) -> StepWork[Any]:
    match step:
        case DaemonReload():
            return DaemonReloadWork(run, step, ident, steps)
        case ClearState():
            return ClearStateWork(run, step, ident, steps)
        case StopUnit():
            return StopWork(run, step, ident, steps)
        case ReloadUnit():
            return ReloadWork(run, step, ident, steps)
        case RestartUnit():
            return RestartWork(run, step, ident, steps)
        case StartUnit():
            return StartWork(run, step, ident, steps)
        case RestartStaticPod():
            return RestartStaticPodWork(run, step, ident, steps)
        case Reboot():
            raise AssertionError("has a phase of its own")
        case _:
            assert_never(step)


async def _do_excused(work: StepWork[Any], step: StepInProgress) -> str:
    """As ``_do``. An action that fails while a service of the host is away may have failed for the want of it, so it is
    tried once more."""
    run = work.run
    outages = run.ports.units.outages()
    try:
        return await _do(work)
    except ServiceUnavailable:
        raise
    except AgentError as error:
        if not run.update.repeated and run.ports.units.outages() == outages:
            raise
        step.warn(f"trying again, because a service of the host was away: {error}", error.reason)
    await asyncio.sleep(AFTER_OUTAGE)
    return await _do(work)


async def _do(work: StepWork[Any]) -> str:
    """Do an action within its limit, and return the start condition that was not met."""
    limit = None if work.limit is None else work.limit + JOB_HEADROOM
    try:
        async with asyncio.timeout(limit):
            condition = await (work.undo() if work.run.record.reverting else work.do())
    except TimeoutError:
        message = f"{describe(work.step)}: no answer within {limit:.0f} s"
        raise ServiceUnavailable(message, reason=Reason.BUS_TIMEOUT, service="systemd") from None
    if not condition:
        await work.proof()
    return condition


async def _end(work: StepWork[Any], step: StepInProgress, condition: str) -> None:
    """End a step whose job is done. ``condition`` is the start condition that was not met."""
    if not condition:
        await _mark_done(work.run, step)
        return
    note = f"start condition {condition} of {step_unit(work.step)} is not met"
    await _mark_done(work.run, step, skipped=True, note=f"{describe(work.step)} skipped, {note}")
    step.skipped(note, Reason.CONDITION_NOT_MET)


async def _mark_done(run: Run, step: StepInProgress, *, skipped: bool = False, note: str = "") -> None:
    progress = run.record.written
    if note:
        run.update.add_notes(note)
    run.update.change_leg(
        done=progress.done | {step.ident},
        skipped=progress.skipped | {step.ident} if skipped else progress.skipped,
        restarting="",
        invocation="",
    )
    await run.save()


async def _judge_failure(work: StepWork[Any], step: StepInProgress, error: AgentError) -> None:
    """Return if the failure does not count, and raise ``ActionFailed`` otherwise."""
    run, unit, of_job = work.run, step_unit(work.step), error.reason in JOB_REASONS
    before = run.record.units_before
    due = unit in before.due and not run.record.reverting
    # A unit that did not run before the update need not run after it; that systemd takes no job at all is another
    # matter.
    if of_job and not must_run(before.states.get(unit, ""), due=due):
        note = f"{unit} did not run before the update, and does not start: {error}"
        step.tolerated(note, error.reason)
        await _mark_done(run, step, skipped=True, note=note)
        return
    state = await run.ports.units.state(unit) if unit else None
    if of_job and state is not None and restarting(state):
        # The verification waits for it.
        step.tolerated(f"{error}; systemd starts it again", error.reason)
        await _mark_done(run, step)
        return
    run.update.change_leg(restarting="", invocation="")
    ended = state.end if state is not None and error.reason == Reason.JOB_FAILED else ""
    message = f"{error}, {ended}" if ended else str(error)
    step.failed(message, error.reason)
    result = state.result if state is not None else ""
    # At the next start the program would reject the same file, and not run at all.
    rejected = error.reason == Reason.RELOAD_REJECTED
    helps = work.reboot_helps and not rejected and curable(run.update, unit, result)
    raise ActionFailed(f"{describe(work.step)}: {message}", reason=error.reason, curable=helps, unit=unit) from error
