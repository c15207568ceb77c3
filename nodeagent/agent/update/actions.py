"""The plan's actions: daemon-reload, reloads, restarts, each once, each with a deadline.

An action that was started and not marked done is done again after a crash, or when systemd did not answer: a second
reload is harmless, a missing one is not. A second restart is harmful to some services, so the invocation ID from before
the first attempt is in the record: systemd knows from it whether the restart took place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import assert_never

from nodeagent.agent.update.admission import check_still_held
from nodeagent.agent.update.run import Limits, Ports, Update, narrate
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.unit_names import is_template
from nodeagent.core.plan.change import PolicySource
from nodeagent.core.plan.steps import (
    ActStep,
    DaemonReload,
    Drain,
    EnableUnit,
    Reboot,
    ReloadUnit,
    RemovePath,
    RestartUnit,
    StopUnit,
    WritePath,
    describe,
    step_id,
    step_unit,
)
from nodeagent.core.update.events import EventKind
from nodeagent.core.update.record import Record
from nodeagent.errors import AgentError, Problem, ServiceUnavailable

__all__ = ["ActionFailed", "act", "missing_units", "states_before", "unit_steps"]

NOT_RUNNING = frozenset({"inactive", "failed"})
"""Active states of a unit of which nothing is expected after the update."""

JOB_HEADROOM = 5.0
"""Seconds by which our own limit exceeds that of the unit job, so that the inner one, which cancels the job, fires
first."""


AFTER_OUTAGE = 5.0
"""Seconds for the services of the host to settle after one of them was away."""


class ActionFailed(AgentError):
    default_reason = "ActionFailed"


def unit_steps(update: Update) -> tuple[ActStep, ...]:
    return tuple(step for step in update.acts if not isinstance(step, Reboot))


async def act(ports: Ports, limits: Limits, update: Update, steps: tuple[ActStep, ...]) -> None:
    """Raises ``ActionFailed`` at the first action that fails or is late."""
    for planned in steps:
        ident = step_id(planned)
        update.index += 1
        if ident in update.record.done:
            continue
        step = await _applicable(ports, update, planned)
        await check_still_held(ports, update, need=limits.action_timeout)
        if (why := await _nothing_to_do(ports, step)) is not None:
            await _skip(ports, update, ident)
            narrate(ports, update, EventKind.STEP_SKIPPED, why, step=step)
            continue
        narrate(ports, update, EventKind.STEP_STARTED, step=step)
        started = ports.clock.monotonic()
        if isinstance(step, RestartUnit | ReloadUnit) and await ports.health.check(step.unit) == "":
            # What was unwell before is not held against the new config.
            update.record = replace(update.record, well=update.record.well | {step.unit})
        # A store that takes nothing more stops us here. After the action it would have it done again at every start.
        since = update.record.invocation if update.record.restarting == ident else None
        if isinstance(step, RestartUnit) and since is None:
            before = (await ports.units.state(step.unit)).invocation_id
            update.record = replace(update.record, restarting=ident, invocation=before)
        await ports.store.save(update.record)
        try:
            unmet = await _do_excused(ports, limits, update, step, since)
        except ServiceUnavailable:
            raise
        except AgentError as error:
            update.record = replace(update.record, restarting="", invocation="")
            if not _expected(update.record, step, error):
                note = f"{step_unit(step)} did not run before the update, and does not start: {error}"
                narrate(ports, update, EventKind.WARNING, note, reason=error.reason, step=step)
                await _skip(ports, update, ident, note)
                continue
            narrate(ports, update, EventKind.STEP_FAILED, str(error), reason=error.reason, step=step)
            raise ActionFailed(f"{describe(step)}: {error}", reason=error.reason) from error
        update.record = replace(update.record, restarting="", invocation="")
        if unmet:
            note = f"start condition {unmet} of {step_unit(step)} is not met"
            await _skip(ports, update, ident, f"{describe(step)} skipped, {note}")
            narrate(ports, update, EventKind.STEP_SKIPPED, note, reason="ConditionNotMet", step=step)
            continue
        update.record = replace(update.record, done=update.record.done | {ident})
        await ports.store.save(update.record)
        narrate(ports, update, EventKind.STEP_DONE, step=step, seconds=ports.clock.monotonic() - started)


async def _applicable(ports: Ports, update: Update, step: ActStep) -> ActStep:
    """The step as the unit files are now. A running unit whose file is gone is stopped instead of restarted: it left
    with the config, or it came with one that is taken back. What was stopped so is started on the way back."""
    match step:
        case RestartUnit(unit) if _file_changes(update, unit):
            state = await ports.units.state(unit)
            if state.load == "not-found" and state.active not in NOT_RUNNING:
                return StopUnit(unit)
        case StopUnit(unit) if update.record.reverting and update.record.before.get(unit, "failed") not in NOT_RUNNING:
            return RestartUnit(unit)
        case _:
            pass
    return step


def _file_changes(update: Update, unit: str) -> bool:
    path = f"{UNIT_DIR}/{unit}"
    return any(isinstance(step, WritePath | RemovePath) and step.path == path for step in update.writes)


async def _skip(ports: Ports, update: Update, ident: str, note: str = "") -> None:
    record = update.record
    notes = record.notes if not note or note in record.notes else (*record.notes, note)
    update.record = replace(record, done=record.done | {ident}, skipped=record.skipped | {ident}, notes=notes)
    await ports.store.save(update.record)


def _expected(record: Record, step: ActStep, error: AgentError) -> bool:
    """Whether the failure of this step counts. A unit that did not run before the update need not run after it; that
    systemd takes no job at all is another matter."""
    return record.before.get(step_unit(step)) not in NOT_RUNNING or not error.reason.startswith("Job")


async def states_before(ports: Ports, update: Update) -> dict[str, str]:
    """Active states, before anything is written, of the units that the plan acts on. A unit that this update enables
    is not among them, and after an update that ended half-way only what runs: all others have to come up."""
    enabled = {step.unit for step in update.writes if isinstance(step, EnableUnit)}
    states: dict[str, str] = {}
    for unit in sorted({step_unit(step) for step in update.acts} - {""}):
        state = await ports.units.state(unit)
        if state.load == "not-found":
            continue
        active = "failed" if state.sub == "auto-restart" else state.active
        newly_enabled = unit in enabled and state.file not in ("enabled", "enabled-runtime")
        if active not in NOT_RUNNING or not (update.record.repairs or newly_enabled):
            states[unit] = active
    return states


async def _nothing_to_do(ports: Ports, step: ActStep) -> str | None:
    """Why this step has nothing to act on: the built-in policy names units that many hosts do not have."""
    match step:
        case ReloadUnit(unit):
            state = await ports.units.state(unit)
            if state.load == "not-found":
                return f"{unit} is not on this host"
            if state.active not in ("active", "reloading", "refreshing"):
                return f"{unit} is {state.active}; it reads its configuration when it starts"
        case StopUnit(unit):
            state = await ports.units.state(unit)
            if state.file:
                return f"{unit} has a unit file of this host"
            if state.active in NOT_RUNNING and not is_template(unit):
                return f"{unit} does not run"
        case RestartUnit(unit):
            state = await ports.units.state(unit)
            if state.load == "not-found":
                return f"{unit} is not on this host"
            if state.load == "masked":
                return f"{unit} is masked"
        case _:
            pass
    return None


async def _do_excused(ports: Ports, limits: Limits, update: Update, step: ActStep, since: str | None) -> str:
    """As ``_do``. An action that fails while a service of the host is away may have failed for the want of it, so it is
    tried once more."""
    outages = ports.units.outages()
    try:
        return await _do(ports, limits, step, since)
    except ServiceUnavailable:
        raise
    except AgentError as error:
        if not update.repeated and ports.units.outages() == outages:
            raise
        text = f"trying again, because a service of the host was away: {error}"
        narrate(ports, update, EventKind.WARNING, text, reason=error.reason, step=step)
    await asyncio.sleep(AFTER_OUTAGE)
    return await _do(ports, limits, step, since)


async def _do(ports: Ports, limits: Limits, step: ActStep, since: str | None) -> str:
    """Returns the start condition because of which systemd started nothing; "" otherwise. Raises
    ``ServiceUnavailable`` when systemd does not answer at all; it ends each job that is late itself."""
    work: Awaitable[str | None]
    match step:
        case DaemonReload():
            limit = limits.daemon_reload_timeout
            work = ports.units.daemon_reload(limit)
        case StopUnit(unit):
            limit = limits.action_timeouts.get(unit, limits.action_timeout)
            work = ports.units.stop(unit, limit)
        case ReloadUnit(unit):
            limit = limits.action_timeouts.get(unit, limits.action_timeout)
            work = ports.units.reload(unit, limit)
        case RestartUnit(unit):
            limit = limits.action_timeouts.get(unit, limits.action_timeout)
            work = ports.units.restart(unit, limit, since=since)
        case Drain() | Reboot():
            raise AssertionError("has a phase of its own")
        case _:
            assert_never(step)
    try:
        async with asyncio.timeout(limit + JOB_HEADROOM):
            return await work or ""
    except TimeoutError:
        message = f"{describe(step)}: no answer within {limit + JOB_HEADROOM:.0f} s"
        raise ServiceUnavailable(message, reason="BusTimeout", service="systemd") from None


async def missing_units(ports: Ports, update: Update, new: MachineConfig) -> tuple[Problem, ...]:
    """Units that the admin's own policy names and that neither this host nor the new config has: a typing error
    there would leave the change silently without effect. Built-in entries may name what a host lacks."""
    named = {
        action.unit
        for planned in update.plan.changes
        if planned.policy is PolicySource.USER
        for action in planned.actions
        if action.unit
    }
    return tuple(
        [
            Problem(f"nodeDisruptionPolicy: {unit}", "no such unit on this host or in the config")
            for unit in sorted(named - set(new.units))
            if (await ports.units.state(unit)).load == "not-found"
        ]
    )
