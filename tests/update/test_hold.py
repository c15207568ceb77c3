# SPDX-License-Identifier: Apache-2.0
"""`nodeagent apply --no-reboot` and `nodeagent reboot`, on the host in memory."""

from __future__ import annotations

import asyncio
import json

import pytest

from nodeagent.reasons import Reason
from nodeagent.update.history.lasting import Hold
from nodeagent.update.ports.events import UpdateWaiting
from nodeagent.update.ports.store import ApplyRequest
from nodeagent.update.states import Phase
from tests.agent.test_api import api
from tests.update.test_cancel import REBOOTS, cancel
from tests.update.test_outcomes import outcomes, status
from tests.update.test_update import B, started
from tests.world import FakeUnit
from tests.world.os_host import NEW, at_old
from tests.world.run import Host

pytestmark = pytest.mark.looptime

# The clock of the host counts boots: this is the time of the second one.
SECOND = "2026-01-01T00:00:02.000Z"


async def held(host: Host, **hold: object) -> asyncio.Task[None]:
    """The update to the desired config waits, as an operator requested."""
    host.world.request = ApplyRequest(host.wanted).held(Hold("", requester="root", **hold))  # type: ignore[arg-type]
    task = asyncio.create_task(host.settle())
    while host.phase is not Phase.LEASING:
        await asyncio.sleep(0.1)
    await asyncio.sleep(300)
    assert host.phase is Phase.LEASING
    return task


def waits(host: Host) -> list[tuple[str, str]]:
    return [(event.reason, event.message) for event in host.world.events if isinstance(event, UpdateWaiting)]


async def test_a_held_reboot_waits_before_anything_is_written() -> None:
    host = await started()
    host.want(REBOOTS)
    task = await held(host, no_reboot=True)
    assert waits(host) == [(Reason.REBOOT_REQUIRED, "this host must be rebooted for b; root holds the reboot back")]
    assert status(host).reboot_required
    assert ("/etc/unlisted" in host.world.disk, host.world.holder, host.world.boot) == (False, None, 1)
    asked = api(host, Phase.LEASING, loop=host.loop)
    assert json.loads(await asked.reboot("root"))["config"] == "b"
    await task
    assert (outcomes(host)[-1], host.world.boot) == (("b", "done", 0), 2)
    assert not status(host).reboot_required
    assert json.loads(await api(host).reboot("root"))["config"] == "", "nothing waits any more"


async def test_a_held_os_update_is_staged() -> None:
    host = await at_old()
    host.want(NEW)
    task = await held(host, no_reboot=True)
    assert [found.locked for found in host.world.deployments if found.staged] == [True]
    await cancel(host)
    await task
    assert (outcomes(host)[-1], host.world.boot) == (("new", "cancelled", 4), 1)
    assert not any(found.staged for found in host.world.deployments)


@pytest.mark.finding(
    "updates: limits after a failure",
    "Without a fallback reboot, a failed action is taken back or leaves the host half-way.",
)
async def test_what_needs_no_reboot_is_applied_and_never_falls_back_to_one() -> None:
    host = await started(app=FakeUnit(bad_until_boot=2))
    host.want(B)
    host.world.request = ApplyRequest(host.wanted).held(Hold("", no_reboot=True, requester="root"))
    await host.settle()
    assert host.world.boot == 1
    assert outcomes(host)[-1][1] in ("reverted", "degraded"), "where a reboot would have been the way out"
