"""Run the actions of the plan: daemon-reload, reloads and restarts, each once, each with a deadline.

After a crash, or when systemd did not answer, an action that was started and not marked as done runs again: a second
reload is harmless, a missing one is not. A second restart harms some services, so the record has the invocation ID from
before the first attempt, which shows whether the restart took place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import assert_never

from nodeagent import domains
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.unit_names import is_template
from nodeagent.core.plan.change import ETCD_UNIT, ChangeKind, KeyChange
from nodeagent.core.plan.domain import UnitFailure
from nodeagent.core.plan.policy import reload
from nodeagent.core.plan.steps import (
    ActStep,
    ClearState,
    DaemonReload,
    Drain,
    Reboot,
    ReloadUnit,
    RemovePath,
    RestartStaticPod,
    RestartUnit,
    StopUnit,
    WritePath,
    describe,
    step_id,
    step_unit,
)
from nodeagent.core.plan.unit_types import UnitStep, type_of
from nodeagent.errors import AgentError, ServiceUnavailable, Terminal
from nodeagent.reasons import Reason
from nodeagent.update.events import StepDone, StepFailed, StepSkipped, StepStarted, Warned
from nodeagent.update.legs import Revert
from nodeagent.update.record import Record
from nodeagent.update.run import Ports, Run, Update
from nodeagent.update.stages.admission import check_before_etcd_stops, check_still_held, stops_etcd
from nodeagent.update.steps import static_pods
from nodeagent.update.steps.restarts import along_before, in_transactions, mark, restart
from nodeagent.update.steps.unit_states import DOWN
from nodeagent.update.steps.unit_verdict import must_run, restarting

# Seconds by which the limit of the call exceeds that of the job, which cancels the job and must end first.
JOB_HEADROOM = 5.0

# Seconds for the services of the host to settle after one of them was away.
AFTER_OUTAGE = 5.0


class ActionFailed(AgentError):
    """``curable``: a reboot may help. ``unit`` is the one that the action is for."""

    default_reason = Reason.ACTION_FAILED

    def __init__(self, message: str, *, reason: Reason | None = None, curable: bool = True, unit: str = "") -> None:
        super().__init__(message, reason=reason)
        self.curable = curable
        self.unit = unit


def curable(update: Update, unit: str, result: str) -> bool:
    """Return whether a reboot may cure the failure of ``unit``, as far as the domains know. ``result`` is systemd's."""
    return domains.curable(UnitFailure(unit, result, keys_of(update)))


def keys_of(update: Update) -> tuple[KeyChange, ...]:
    """Return the keys that the update changes."""
    return tuple(key for planned in update.plan.changes for key in planned.keys)


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


async def act(run: Run, steps: tuple[ActStep, ...]) -> None:
    """Do the steps that are not done. Raise ``ActionFailed`` at the first that fails or is late."""
    ports, update = run.ports, run.update
    left, ordered = list(steps), False
    while left:
        if isinstance(left[0], RestartUnit) and not ordered:
            # After the daemon-reload, which may change what requires what.
            left, ordered = await in_transactions(ports, left), True
        planned = left.pop(0)
        # The id is that of the planned step. What it becomes depends on the state of the unit, which a kill may have
        # changed.
        ident = step_id(planned)
        update.index += 1
        if ident in run.record.written.done:
            continue
        step = await _applicable(run, planned)
        # The lease must outlast the action, because an action is not interrupted when the lease ends.
        await check_still_held(run, need=run.policy.action_timeout)
        await _check_exists(run, step)
        if (why := await _nothing_to_do(ports, step)) is not None:
            await _skip(run, ident)
            run.narrate(StepSkipped, update.progress(step), why)
            continue
        if isinstance(step, RestartStaticPod):
            await static_pods.check(run, step)
        # The quorum is checked for this step and not once for all: an earlier step may have taken minutes.
        elif isinstance(step, RestartUnit | StopUnit | ClearState) and step.unit == ETCD_UNIT:
            if await stops_etcd(ports):
                await check_before_etcd_stops(run)
            await _save_keyspace(run)
        run.narrate(StepStarted, update.progress(step))
        started = ports.clock.monotonic()
        if isinstance(step, ClearState | RestartUnit | ReloadUnit):
            # Only a unit that was healthy before must be healthy afterwards.
            along = along_before(run) if isinstance(step, RestartUnit) else ()
            healthy = {unit for unit in (step.unit, *along) if await ports.health.check(unit) == ""}
            before = run.record.units_before
            update.record = replace(run.record, units_before=replace(before, healthy=before.healthy | healthy))
        # If the store accepts no more writes, the update stops here. After the action, each start would repeat it.
        since = await mark(run, step, ident, steps)
        try:
            unmet = await _do_excused(run, step, since)
        except ServiceUnavailable:
            raise
        except AgentError as error:
            update.change_leg(restarting="", invocation="")
            if not _expected(run.record, step, error):
                note = f"{step_unit(step)} did not run before the update, and does not start: {error}"
                run.narrate(Warned, note, error.reason, update.progress(step))
                await _skip(run, ident, note)
                continue
            unit = step_unit(step)
            state = await ports.units.state(unit) if unit else None
            if state is not None and restarting(state) and error.reason.startswith("Job"):
                # The verification waits for it.
                run.narrate(Warned, f"{error}; systemd starts it again", error.reason, update.progress(step))
                await _finish(run, ident)
                continue
            ended = state.end if state is not None and error.reason == Reason.JOB_FAILED else ""
            why = f"{error}, {ended}" if ended else str(error)
            run.narrate(StepFailed, update.progress(step), why, error.reason)
            result = state.result if state is not None else ""
            # The kubelet starts the pods of a boot from the same manifests.
            helps = not isinstance(step, RestartStaticPod) and curable(update, unit, result)
            # At the next start the program would reject the same file, and not run at all.
            helps = helps and error.reason != Reason.RELOAD_REJECTED
            message = f"{describe(step)}: {why}"
            raise ActionFailed(message, reason=error.reason, curable=helps, unit=unit) from error
        update.change_leg(restarting="", invocation="")
        if unmet:
            note = f"start condition {unmet} of {step_unit(step)} is not met"
            await _skip(run, ident, f"{describe(step)} skipped, {note}")
            run.narrate(StepSkipped, update.progress(step), note, Reason.CONDITION_NOT_MET)
            continue
        await _finish(run, ident)
        run.narrate(StepDone, update.progress(step), ports.clock.monotonic() - started)


async def _finish(run: Run, ident: str) -> None:
    run.update.change_leg(done=run.record.written.done | {ident})
    await run.ports.store.save(run.record)


async def _save_keyspace(run: Run) -> None:
    """Save the data of etcd before its unit may start another program."""
    # The prefix covers the drop-ins, which may name another program. A revert keeps the snapshot that its update saved.
    unit = f"{UNIT_DIR}/{ETCD_UNIT}"
    paths = [step.path for step in run.update.writes if isinstance(step, WritePath | RemovePath)]
    if run.ports.static_pods is not None and not run.record.reverting and any(path.startswith(unit) for path in paths):
        await run.ports.static_pods.save_keyspace()


async def _applicable(run: Run, step: ActStep) -> ActStep:
    """Return the step as the unit files are now. A running unit whose file is gone is stopped instead of restarted: it
    left with the config, or it came with one that is reverted. A revert starts again what was stopped so."""
    before = run.record.units_before.states
    match step:
        case RestartUnit(unit):
            state = await run.ports.units.state(unit)
            # What is mounted is loaded without a file.
            if state.active not in DOWN and not state.file and _file_leaves(run.update, unit):
                return StopUnit(unit)
        case ReloadUnit(unit):
            state = await run.ports.units.state(unit)
            if state.active == "activating" and not restarting(state):
                # It has begun to start, maybe with the old files, and takes no reload yet.
                return RestartUnit(unit)
        case StopUnit(unit) if run.record.reverting and before.get(unit, "failed") not in DOWN:
            return RestartUnit(unit)
        case _:
            pass
    return step


def _file_leaves(update: Update, unit: str) -> bool:
    """Return whether the update changes the file of ``unit``, or removes each file because of which it restarts."""
    path = f"{UNIT_DIR}/{unit}"
    if any(isinstance(step, WritePath | RemovePath) and step.path == path for step in update.writes):
        return True
    # A generator made it of one of those files.
    kinds = {planned.change.id: planned.change.kind for planned in update.plan.changes}
    because = [change for action in update.plan.actions if action.unit == unit for change in action.because]
    return bool(because) and all(kinds.get(change) is ChangeKind.REMOVED for change in because)


async def _skip(run: Run, ident: str, note: str = "") -> None:
    progress = run.record.written
    if note:
        run.update.add_notes(note)
    run.update.change_leg(done=progress.done | {ident}, skipped=progress.skipped | {ident})
    await run.ports.store.save(run.record)


def _expected(record: Record, step: ActStep, error: AgentError) -> bool:
    """Whether the failure of this step counts. A unit that did not run before the update need not run after it; that
    systemd takes no job at all is another matter."""
    unit, before = step_unit(step), record.units_before
    due = unit in before.due and not record.reverting
    return must_run(before.states.get(unit, ""), due=due) or not error.reason.startswith("Job")


async def _check_exists(run: Run, step: ActStep) -> None:
    """Raise ``ActionFailed`` (``UnitNotFound``) for a unit that ran before and is gone although no file of it left: a
    generator no longer makes it."""
    unit = step_unit(step)
    ran = run.record.units_before.states.get(unit, "failed") not in DOWN
    if run.record.reverting or not ran or not isinstance(step, RestartUnit | ReloadUnit):
        return
    if (await run.ports.units.state(unit)).load == "not-found":
        message = f"{describe(step)}: {unit} does not exist any more with the new files"
        raise ActionFailed(message, reason=Reason.UNIT_NOT_FOUND, curable=False, unit=unit)


async def _nothing_to_do(ports: Ports, step: ActStep) -> str | None:
    """Why this step has nothing to act on: the built-in policy names units that many hosts do not have."""
    if not (unit := step_unit(step)):
        return None
    state = await ports.units.state(unit)
    match step:
        case StopUnit():
            if UnitStep.STOP not in type_of(unit).leaves:
                return f"{unit} needs no unit file"
            if state.file and state.load != "masked":
                return f"{unit} has a unit file of this host"
            # A template never runs itself, and its state says nothing about its instances.
            if state.active in DOWN and not is_template(unit):
                return f"{unit} does not run"
        case _ if state.load == "not-found":
            return f"{unit} is not on this host"
        case ReloadUnit() if state.active not in ("active", "reloading", "refreshing"):
            return f"{unit} is {state.active}; it reads its configuration when it starts"
        case RestartUnit() | ClearState() if state.load == "masked":
            return f"{unit} is masked"
        case _:
            pass
    return None


async def _do_excused(run: Run, step: ActStep, since: str | None) -> str:
    """As ``_do``. An action that fails while a service of the host is away may have failed for the want of it, so it is
    tried once more."""
    outages = run.ports.units.outages()
    try:
        return await _do(run, step, since)
    except ServiceUnavailable:
        raise
    except AgentError as error:
        if not run.update.repeated and run.ports.units.outages() == outages:
            raise
        text = f"trying again, because a service of the host was away: {error}"
        run.narrate(Warned, text, error.reason, run.update.progress(step))
    await asyncio.sleep(AFTER_OUTAGE)
    return await _do(run, step, since)


async def _do(run: Run, step: ActStep, since: str | None) -> str:
    """Returns the start condition because of which systemd started nothing; "" otherwise. Raises
    ``ServiceUnavailable`` when systemd does not answer at all; it ends each job that is late itself."""
    policy, units = run.policy, run.ports.units
    began = run.ports.clock.now()
    # systemd would wait for TimeoutStartSec= or TimeoutStopSec= of the unit, which may be infinity.
    limit = policy.action_timeout
    work: Awaitable[str | None]
    match step:
        case DaemonReload():
            limit = policy.daemon_reload_timeout
            work = units.daemon_reload(limit)
        case ClearState(unit, paths):
            work = _clear(run, unit, paths, limit)
        case StopUnit(unit):
            work = units.stop(unit, limit)
        case ReloadUnit(unit):
            work = units.reload(unit, limit)
        case RestartUnit(unit):
            # With the stop and the start of the units that it starts on demand.
            work, limit = restart(run, unit, limit, since), 3 * limit
        case RestartStaticPod():
            # Each of its waits has a deadline.
            await static_pods.restart(run, step)
            return ""
        case Drain() | Reboot():
            raise AssertionError("has a phase of its own")
        case _:
            assert_never(step)
    try:
        async with asyncio.timeout(limit + JOB_HEADROOM):
            unmet = await work or ""
    except TimeoutError:
        message = f"{describe(step)}: no answer within {limit + JOB_HEADROOM:.0f} s"
        raise ServiceUnavailable(message, reason=Reason.BUS_TIMEOUT, service="systemd") from None
    if isinstance(step, ReloadUnit):
        await _check_reload(run, step, began)
    elif isinstance(step, RestartUnit) and not unmet:
        await _check_values(run, step)
    return unmet


async def _check_reload(run: Run, step: ReloadUnit, began: str) -> None:
    """Raise ``Terminal`` (``ReloadRejected``) if the program kept its old configuration, although its job is done."""
    wanted = reload(step.unit)
    keys = [key for key in keys_of(run.update) if wanted in key.actions]
    if run.record.reverting:
        # A revert reloads the values from before the update.
        keys = [replace(key, before=key.after, after=key.before) for key in keys]
    problem = await run.ports.health.reload_problem(step.unit, began, keys)
    if problem is None:
        note = f"{step.unit} did not log whether it took the configuration over"
        run.narrate(Warned, note, "", run.update.progress(step))
    elif problem:
        raise Terminal(f"{step.unit}: {problem}", reason=Reason.RELOAD_REJECTED)


async def _check_values(run: Run, step: RestartUnit) -> None:
    """Raise ``Terminal`` (``ReloadRejected``) if the kernel did not take the values that the unit sets."""
    values = domains.live_values(step.unit, keys_of(run.update), reverted=run.record.reverting)
    if values and (problem := await run.ports.health.values_problem(values)):
        raise Terminal(f"{step.unit}: {problem}", reason=Reason.RELOAD_REJECTED)


async def _clear(run: Run, unit: str, paths: Sequence[str], limit: float) -> None:
    """Both parts may be done again. A unit that runs would write its state again, so it is stopped first."""
    await run.ports.units.stop(unit, limit)
    for path in paths:
        await run.ports.files.remove(path, ())
