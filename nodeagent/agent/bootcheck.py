"""Units after a planned reboot: what ran before it has to run after it.

A plan with a reboot restarts nothing by itself, so there are no steps whose units could be watched. Instead all units
that the config enables, or whose files it changed, are looked at before and after. Only a failure counts, and only one
that is new: a unit whose condition is not met, or that takes long, is no reason to go back to another OS.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from nodeagent.agent.context import Limits, Ports, Update
from nodeagent.agent.verify import VerifyFailed
from nodeagent.core.ports import UnitState

__all__ = ["look_before", "watch_boot"]

LOOK_AGAIN = 2.0
"""Seconds between two looks; each asks systemd about some dozens of units."""


def _units(update: Update) -> list[str]:
    named = {action.unit for planned in update.plan.changes for action in planned.actions if action.unit}
    enabled = {unit.name for unit in update.new.units.values() if unit.enabled and not unit.mask}
    return sorted((named | enabled) - update.record.unwell)


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
    well, unwell = set(), set()
    for unit in _units(update):
        if _failed(await ports.units.state(unit)):
            unwell.add(unit)
        elif await ports.health.check(unit) == "":
            well.add(unit)
    record = update.record
    update.record = replace(record, well=record.well | well, unwell=record.unwell | unwell)


async def watch_boot(ports: Ports, limits: Limits, update: Update) -> None:
    """Returns when nothing that was well has failed for the settle time, or is only slow. Raises ``VerifyFailed`` for
    what is still failed when the time for verification is over."""
    units = _units(update)
    if not units:
        return
    clock = ports.clock.monotonic
    give_up, good_since = clock() + limits.verify_timeout, None
    while True:
        bad, waiting = await _look(ports, units, update.record.well)
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
        await asyncio.sleep(LOOK_AGAIN)


async def _look(ports: Ports, units: list[str], well: frozenset[str]) -> tuple[list[str], bool]:
    """What has failed, and whether something is still starting."""
    bad: list[str] = []
    waiting = False
    for unit in units:
        state = await ports.units.state(unit)
        if why := _failed(state):
            bad.append(why)
        elif state.active == "activating":
            waiting = True
        elif unit in well and (why := await ports.health.check(unit) or ""):
            bad.append(f"{unit}: {why}")
    return bad, waiting
