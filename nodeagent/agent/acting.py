"""The plan's actions: daemon-reload, reloads, restarts, each once, each with a deadline.

An action that was started and not marked done is done again after a crash, or when systemd did not answer: a second
reload is harmless, a missing one is not. A second restart is harmful to some services, so the invocation ID from before
the first attempt is in the record: systemd knows from it whether the restart took place.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import assert_never

from nodeagent.agent.context import Limits, Ports, Update, narrate
from nodeagent.agent.leasing import still_ours
from nodeagent.core.change import PolicySource
from nodeagent.core.events import EventKind
from nodeagent.core.machineconfig import MachineConfig
from nodeagent.core.steps import ActStep, DaemonReload, Drain, Reboot, ReloadUnit, RestartUnit, describe, step_id
from nodeagent.errors import AgentError, Problem, ServiceUnavailable

__all__ = ["ActionFailed", "act", "missing_units", "unit_steps"]

JOB_HEADROOM = 5.0
"""Seconds by which our own limit exceeds that of the unit job, so that the inner one, which cancels the job, fires
first."""


class ActionFailed(AgentError):
    default_reason = "ActionFailed"


def unit_steps(update: Update) -> tuple[ActStep, ...]:
    return tuple(step for step in update.acts if not isinstance(step, Reboot))


async def act(ports: Ports, limits: Limits, update: Update, steps: tuple[ActStep, ...]) -> None:
    """Raises ``ActionFailed`` at the first action that fails or is late."""
    for step in steps:
        ident = step_id(step)
        update.index += 1
        if ident in update.record.done:
            continue
        await still_ours(ports, update, need=limits.action_timeout)
        if (why := await _nothing_to_do(ports, step)) is not None:
            record = update.record
            update.record = replace(record, done=record.done | {ident}, skipped=record.skipped | {ident})
            await ports.store.save(update.record)
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
            await _do(ports, limits, step, since)
        except ServiceUnavailable:
            raise
        except AgentError as error:
            update.record = replace(update.record, restarting="", invocation="")
            narrate(ports, update, EventKind.STEP_FAILED, str(error), reason=error.reason, step=step)
            raise ActionFailed(f"{describe(step)}: {error}", reason=error.reason) from error
        update.record = replace(update.record, done=update.record.done | {ident}, restarting="", invocation="")
        await ports.store.save(update.record)
        narrate(ports, update, EventKind.STEP_DONE, step=step, seconds=ports.clock.monotonic() - started)


async def _nothing_to_do(ports: Ports, step: ActStep) -> str | None:
    """Why this step has nothing to act on: the built-in policy names units that many hosts do not have."""
    match step:
        case ReloadUnit(unit):
            state = await ports.units.state(unit)
            if state.load == "not-found":
                return f"{unit} is not on this host"
            if state.active not in ("active", "reloading", "refreshing"):
                return f"{unit} is {state.active}; it reads its configuration when it starts"
        case RestartUnit(unit):
            state = await ports.units.state(unit)
            if state.load == "not-found":
                return f"{unit} is not on this host"
            if state.load == "masked":
                return f"{unit} is masked"
        case _:
            pass
    return None


async def _do(ports: Ports, limits: Limits, step: ActStep, since: str | None) -> None:
    """Raises ``ServiceUnavailable`` when systemd does not answer at all; it ends each job that is late itself."""
    match step:
        case DaemonReload():
            limit = limits.daemon_reload_timeout
            work = ports.units.daemon_reload(limit)
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
            await work
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
