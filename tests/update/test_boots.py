# SPDX-License-Identifier: Apache-2.0
"""The reboots that the agent requested, and all boots during an update, in its entry of the history."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from nodeagent.update.history.trail import Boot, PaceTrail, Trail, boots_during
from nodeagent.update.history.trail_fold import MAX_BOOTS, Moment, closed
from nodeagent.update.ports.store import HistoryEntry
from nodeagent.update.record import reboot_requested
from nodeagent.update.states import Phase
from tests.update import test_kills
from tests.update.test_soft_reboots import go_to_reboot
from tests.world import kill_points
from tests.world.run import Host, until

pytestmark = [
    pytest.mark.looptime,
    pytest.mark.finding(
        "history: boots of others",
        "The history counts the reboots that the agent requested, and all boots apart from them.",
    ),
]


def newest(host: Host) -> HistoryEntry:
    return host.world.history[-1]


async def test_a_power_cut_is_a_boot_and_no_reboot() -> None:
    """In each phase, also before the first write."""
    total = await test_kills.total_calls(test_kills.BUSY)
    for fuse in kill_points(total):
        host = await test_kills.at_old()
        host.want(test_kills.BUSY)
        await host.kill_at(fuse, power=True)
        # The entry is written before what the update holds is given back, and not before its beginning.
        began, over = bool(host.record.update_id), len(host.world.history) > 1
        await host.settle()
        boots = 1 if began and not over else 0
        assert (newest(host).outcome, newest(host).reboots, newest(host).boots) == ("done", 0, boots), f"at {fuse}"


async def test_a_power_cut_beside_the_reboot_of_the_update() -> None:
    total = await test_kills.total_calls(test_kills.REBOOTING)
    for fuse in kill_points(total):
        host = await test_kills.at_old()
        host.want(test_kills.REBOOTING)
        await host.kill_at(fuse, power=True)
        requested = reboot_requested(host.record)
        await host.settle()
        entry, reboots = newest(host), host.actions().count("reboot")
        assert entry.outcome == "done"
        # The power may be cut after the record has the request, and before logind has it.
        assert entry.reboots == max(reboots, requested), f"at {fuse}"
        assert entry.boots >= max(1, entry.reboots), f"at {fuse}"


@pytest.mark.parametrize("soft", [False, True], ids=["power cut", "soft reboot of another program"])
async def test_what_was_requested_is_a_reboot(soft: bool) -> None:
    """logind has accepted it, and the host goes down in another way."""
    host = await test_kills.at_old()
    host.world.units["app.service"].fail_restarts = 9
    host.want(test_kills.BUSY)
    await go_to_reboot(host)
    if soft:
        host.world.soft_reboot()
    else:
        host.world.power_cut()
    await host.settle()
    entry = newest(host)
    assert (entry.outcome, entry.reboots, entry.boots) == ("done-after-fallback", 1, 1)
    assert entry.soft_reboots == int(soft)


async def test_a_power_cut_after_the_reboot() -> None:
    host = await test_kills.at_old()
    host.want(test_kills.REBOOTING)
    assert not await host._live(), "the host goes down"
    assert host.phase is Phase.REBOOTING
    verifying = asyncio.create_task(until(host, Phase.VERIFYING))
    life = asyncio.create_task(host._live())
    await verifying
    life.cancel()
    await asyncio.gather(life, return_exceptions=True)
    host.world.power_cut()
    await host.settle()
    assert (newest(host).outcome, newest(host).reboots, newest(host).boots) == ("done", 1, 2)


async def test_more_boots_than_the_trail_keeps() -> None:
    trail = Trail()
    for number in range(2 * MAX_BOOTS):
        trail = closed(trail, Moment("2026-01-01T00:00:00.000Z", f"boot-{number}", 1.0))
    assert (len(trail.boots), boots_during(trail)) == (MAX_BOOTS, 2 * MAX_BOOTS - 1)
    assert boots_during(Trail()) == 0


async def test_the_fence_stays_with_its_boot() -> None:
    full = Trail(boots=tuple(Boot(f"boot-{number}", 1.0, 1.0, 0.0) for number in range(MAX_BOOTS)))
    gone = MAX_BOOTS // 2

    def boot_of(fence: int) -> int | None:
        trail = replace(full, fence=PaceTrail(fence, 1.0))
        moved = closed(trail, Moment("2026-01-01T00:00:00.000Z", "one more", 1.0)).fence
        return None if moved is None else moved.boot

    assert [boot_of(boot) for boot in (0, gone - 1, gone, gone + 1)] == [0, gone - 1, None, gone]
