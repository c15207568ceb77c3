"""Units after a planned reboot: what ran before it has to run after it.

A plan with a reboot restarts no unit, so there are no steps whose units could be watched. Instead all units that the
config enables, or whose files it changed, are checked before and after. What counts is a new failure, and a unit that
ran and does not come up any more. Slow units, and new ones whose start condition is not met, do not trigger a rollback.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from nodeagent.agent.update.run import Progress, Run, Update
from nodeagent.agent.update.verification import VerifyFailed
from nodeagent.core.plan.change import ActionType
from nodeagent.core.update.ports.host import UnitState
from nodeagent.reasons import Reason

# Seconds between two checks; each reads the states of some dozens of units from systemd.
PERIOD = 2.0

RUNS = ("active", "reloading", "refreshing")


def _units(update: Update) -> list[str]:
    actions = [action for planned in update.plan.changes for action in planned.actions]
    # The unit of a RestartStaticPod is the name of a pod, which systemd does not know.
    named = {action.unit for action in actions if action.unit and action.type is not ActionType.RESTART_STATIC_POD}
    return sorted((named | _enabled(update)) - update.record.units_before.failed)


def _enabled(update: Update) -> set[str]:
    return {unit.name for unit in update.new.units.values() if unit.enabled and not unit.mask}


def _failure(state: UnitState) -> str:
    if state.active == "failed":
        return f"{state.name} failed ({state.result})"
    if state.sub == "auto-restart":
        return f"{state.name} died and is being restarted ({state.result})"
    return ""


async def note_units(run: Run) -> None:
    """Note in the record which units are healthy and which are not.

    Not in a later boot than the one of the first write: what fails there may fail because of the new files.
    """
    if run.record.written.first_write_boot_id != run.ports.power.boot_id():
        return
    healthy, running, failed = set(), set(), set()
    for unit in _units(run.update):
        state = await run.ports.units.state(unit)
        if _failure(state):
            failed.add(unit)
            continue
        if await run.ports.health.check(unit) == "":
            healthy.add(unit)
        # A oneshot has ended by now, and a service that a socket, timer or path starts on demand need not run.
        always = state.type != "oneshot" and not state.triggered_by
        if state.active in RUNS and always and unit in _enabled(run.update):
            running.add(unit)
    before = run.record.units_before
    before = replace(
        before, healthy=before.healthy | healthy, running=before.running | running, failed=before.failed | failed
    )
    run.update.record = replace(run.record, units_before=before)


async def watch_boot(run: Run, progress: Progress) -> None:
    """Return when the boot is complete and every unit was healthy for the settle time, or some are only slow.

    Raise ``VerifyFailed`` for what is still wrong when the time for verification is over.
    """
    units = _units(run.update)
    if not units:
        return
    clock = run.ports.clock.monotonic
    deadline, good_since = clock() + run.policy.verify_timeout, None
    while True:
        bad, waiting = await _check(run, units)
        # A unit that waits for its turn in the boot is inactive, like one that no unit starts.
        waiting = waiting or not await run.ports.units.boot_finished()
        now = clock()
        if bad or waiting:
            good_since = None
        elif good_since is None:
            good_since = now
        if good_since is not None and now - good_since >= run.policy.settle:
            return
        # Units that are only slow are no reason for a rollback, which would cost another reboot.
        if now >= deadline:
            if bad:
                message = "; ".join(why for _, why in bad[:5])
                # A full reboot may help after a soft one, which is all that follows from this.
                raise VerifyFailed(message, reason=Reason.UNIT_UNHEALTHY, curable=True, unit=bad[0][0])
            return
        if good_since is None:
            progress(f"{bad[0][1] if bad else 'units are still starting'}; waiting for it", deadline)
        else:
            progress("the boot is complete; units are watched", good_since + run.policy.settle)
        await asyncio.sleep(PERIOD)


async def _check(run: Run, units: list[str]) -> tuple[list[tuple[str, str]], bool]:
    """Return the units that are not well, each with the cause, and whether a unit is still starting."""
    bad: list[tuple[str, str]] = []
    waiting = False
    before = run.record.units_before
    for unit in units:
        state = await run.ports.units.state(unit)
        if why := _failure(state):
            bad.append((unit, why))
        elif state.active == "activating":
            waiting = True
        elif unit in before.running and state.active not in RUNS and not state.condition:
            bad.append((unit, f"{unit} ran before the reboot and is {state.active}"))
        elif unit in before.healthy and (why := await run.ports.health.check(unit) or ""):
            bad.append((unit, f"{unit}: {why}"))
    return bad, waiting
