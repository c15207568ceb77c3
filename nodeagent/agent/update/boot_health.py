"""Units after a planned reboot: what ran before it has to run after it.

A plan with a reboot restarts no unit, so there are no steps whose units could be watched. Instead all units that the
config enables, or whose files it changed, are checked before and after. What counts is a new failure, and a unit that
ran and does not come up any more. Slow units, and new ones whose start condition is not met, do not trigger a rollback.

greenboot, where it is installed, runs its health check at each boot. If it fails, greenboot reboots the host while
boots are left, and rolls back when they are used up. nodeagent does not roll back at the same time: two programs that
swap the boot order undo each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from nodeagent.agent.update.run import Progress, Run, Update
from nodeagent.agent.update.verification import VerifyFailed
from nodeagent.core.plan.change import ActionType
from nodeagent.core.update.ports.host import UnitState
from nodeagent.errors import AgentError
from nodeagent.reasons import Reason

# Seconds between two checks; each reads the states of some dozens of units from systemd.
PERIOD = 2.0

HEALTH_CHECK: Final = "greenboot-healthcheck.service"

# Seconds for greenboot to take the host down after its check has failed. It requests that before the unit has failed,
# so afterwards it does not want to.
GOING_DOWN: Final = 60.0

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
    deadline, good_since, outages = clock() + run.policy.verify_timeout, None, run.ports.units.outages()
    while True:
        bad, waiting = await _check(run, units)
        if run.ports.units.outages() != outages:
            # Units that went down with a service of the host have the time to come back.
            outages, deadline = run.ports.units.outages(), clock() + run.policy.verify_timeout
            run.update.progressed()
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
        if now >= deadline and (good_since is None or good_since >= deadline):
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


async def watch_greenboot(run: Run, progress: Progress) -> None:
    """Wait for greenboot's health check of this boot.

    Raise ``VerifyFailed`` (``GreenbootFailed``) if it fails, and greenboot leaves the host as it is, or if it does not
    end in time.
    """
    clock = run.ports.clock.monotonic
    deadline = clock() + run.policy.verify_timeout
    while (state := await _greenboot(run)) is not None and state.active == "activating":
        if clock() >= deadline:
            raise _greenboot_failed(f"{HEALTH_CHECK} did not end within {run.policy.verify_timeout:g} s")
        progress(f"{HEALTH_CHECK} runs; waiting for it", deadline)
        await asyncio.sleep(PERIOD)
    if state is None or state.active != "failed":
        return
    progress(f"{HEALTH_CHECK} failed; greenboot may reboot the host", clock() + GOING_DOWN)
    await asyncio.sleep(GOING_DOWN)
    raise _greenboot_failed(f"{HEALTH_CHECK} failed ({state.result})")


async def greenboot_rolled_back(run: Run, order: Sequence[str], staged: str, booted: str) -> str:
    """Return that greenboot put ``booted`` before ``staged`` in the boot order, "" if it did not."""
    # greenboot changes the boot order, which a choice at the boot menu leaves as it is.
    if await _greenboot(run) is None or booted not in order or order.index(booted) > order.index(staged):
        return ""
    return "greenboot rolled back"


def _greenboot_failed(why: str) -> VerifyFailed:
    return VerifyFailed(why, reason=Reason.GREENBOOT_FAILED, unit=HEALTH_CHECK)


async def _greenboot(run: Run) -> UnitState | None:
    """Return the state of the health check; None without greenboot."""
    try:
        state = await run.ports.units.state(HEALTH_CHECK)
    except AgentError as error:
        if error.reason in (Reason.UNIT_NOT_FOUND, Reason.UNIT_MASKED, Reason.UNIT_INVALID):
            return None
        raise
    return state if state.load == "loaded" else None
