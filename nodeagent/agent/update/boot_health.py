"""Units after a planned reboot: what ran before it has to run after it.

A plan with a reboot restarts nothing by itself, so there are no steps whose units could be watched. Instead all units
that the config enables, or whose files it changed, are looked at before and after. What counts is a failure that is
new, and a unit that ran and does not come up any more. One that takes long, or is new and does not start because its
condition is not met, is no reason to go back to another OS.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from nodeagent.agent.update.progress import Progress
from nodeagent.agent.update.run import Limits, Ports, Update
from nodeagent.agent.update.verification import VerifyFailed
from nodeagent.core.update.ports import UnitState
from nodeagent.core.update.record import Record

__all__ = ["look_before", "watch_boot"]

LOOK_AGAIN = 2.0
"""Seconds between two looks; each asks systemd about some dozens of units."""


RUNS = ("active", "reloading", "refreshing")


def _units(update: Update) -> list[str]:
    named = {action.unit for planned in update.plan.changes for action in planned.actions if action.unit}
    return sorted((named | _enabled(update)) - update.record.unwell)


def _enabled(update: Update) -> set[str]:
    return {unit.name for unit in update.new.units.values() if unit.enabled and not unit.mask}


def _failed(state: UnitState) -> str:
    if state.active == "failed":
        return f"{state.name} failed ({state.result})"
    if state.sub == "auto-restart":
        return f"{state.name} died and is being restarted ({state.result})"
    return ""


async def look_before(ports: Ports, update: Update) -> None:
    """Notes in the record what is well and what is not. Not in a later boot than the one in which the files were
    written: what fails there may fail because of them."""
    if update.record.wrote_boot != ports.power.boot_id():
        return
    well, ran, unwell = set(), set(), set()
    for unit in _units(update):
        state = await ports.units.state(unit)
        if _failed(state):
            unwell.add(unit)
            continue
        if await ports.health.check(unit) == "":
            well.add(unit)
        always = state.type != "oneshot" and not state.triggered_by  # and not only when it is needed
        if state.active in RUNS and always and unit in _enabled(update):
            ran.add(unit)
    record = update.record
    update.record = replace(record, well=record.well | well, ran=record.ran | ran, unwell=record.unwell | unwell)


async def watch_boot(ports: Ports, limits: Limits, update: Update, progress: Progress) -> None:
    """Returns when the boot is over and nothing has been wrong for the settle time, or something is only slow. Raises
    ``VerifyFailed`` for what is still wrong when the time for verification is over."""
    units = _units(update)
    if not units:
        return
    clock = ports.clock.monotonic
    give_up, good_since = clock() + limits.verify_timeout, None
    while True:
        bad, waiting = await _look(ports, units, update.record)
        waiting = waiting or not await ports.units.boot_finished()
        now = clock()
        if bad or waiting:
            good_since = None
        elif good_since is None:
            good_since = now
        if good_since is not None and now - good_since >= limits.settle:
            return
        if now >= give_up:
            if bad:
                raise VerifyFailed("; ".join(bad[:5]), reason="UnitUnhealthy")
            return
        if good_since is None:
            progress(f"{bad[0] if bad else 'units are still starting'}; waiting for it", give_up)
        else:
            progress("the boot is complete; units are watched", good_since + limits.settle)
        await asyncio.sleep(LOOK_AGAIN)


async def _look(ports: Ports, units: list[str], before: Record) -> tuple[list[str], bool]:
    """What is wrong, and whether something is still starting."""
    bad: list[str] = []
    waiting = False
    for unit in units:
        state = await ports.units.state(unit)
        if why := _failed(state):
            bad.append(why)
        elif state.active == "activating":
            waiting = True
        elif unit in before.ran and state.active not in RUNS and not state.condition:
            bad.append(f"{unit} ran before the reboot and is {state.active}")
        elif unit in before.well and (why := await ports.health.check(unit) or ""):
            bad.append(f"{unit}: {why}")
    return bad, waiting
