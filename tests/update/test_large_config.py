# SPDX-License-Identifier: Apache-2.0
"""Configs of the largest size: the work on the event loop grows with the number of files, not with its square."""

from __future__ import annotations

import time

import pytest

from nodeagent.update.states import Phase
from tests.support.stalls import MAX_STALL, Stalls
from tests.world import World
from tests.world.run import Host, config

FEW, MANY = 5_000, 20_000


async def seconds_of_cpu(files: int) -> float:
    """CPU time of an update that adds ``files`` files. The host in memory costs little of it."""
    host = Host(World())
    host.want(config("start", {"/etc/quiet/other": "1"}))
    await host.settle()
    wanted = config("added", {f"/etc/quiet/{index}": "1" for index in range(files)})
    started = time.thread_time()
    host.want(wanted)
    await host.settle()
    assert host.phase is Phase.IDLE
    assert len(host.world.disk) == files
    return time.thread_time() - started


@pytest.mark.long
@pytest.mark.finding("updates: large configs", "An update takes time in proportion to its files.")
@pytest.mark.looptime
async def test_an_update_takes_time_in_proportion_to_its_files() -> None:
    # Four times the files take about four times as long; with one quadratic search among them it was nine times.
    assert await seconds_of_cpu(MANY) < 6.5 * await seconds_of_cpu(FEW)


@pytest.mark.finding(
    "updates: large configs", "The checks before an update hold the event loop for less than 100 ms, with 20,000 files."
)
async def test_the_checks_before_an_update_leave_the_loop_its_turn() -> None:
    host = Host(World())
    host.want(config("start", {"/etc/quiet/other": "1"}))
    await host.settle()
    host.want(config("added", {f"/etc/quiet/{index}": "1" for index in range(MANY)}))
    loop = host.build()
    desired = await loop.desired.read()
    assert desired is not None
    stalls = Stalls()
    update = await loop.check(desired)
    assert len(update.writes) > MANY
    assert stalls.stop() < MAX_STALL
