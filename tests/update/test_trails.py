# SPDX-License-Identifier: Apache-2.0
"""The history entry of an update has its plan and its trail: over a reboot, after a revert, after kills."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.reasons import Reason
from nodeagent.update.history.trail import Trail, trail_from_dict
from nodeagent.update.ports.events import UpdateFinished
from nodeagent.update.ports.system import Inhibitor
from nodeagent.update.states import Phase
from tests.agent.test_api import api
from tests.update.test_kills import BUSY, REBOOTING, at_old
from tests.world import os_host as os_hosts
from tests.world.run import Host

pytestmark = pytest.mark.looptime

WAY = ["Leasing", "Writing", "Acting", "Verifying", "Releasing"]


def trail(host: Host) -> Trail:
    return trail_from_dict(host.world.history[-1].trail)


def names(found: Trail) -> list[str]:
    return [span.name for span in found.phases]


async def test_an_update_with_actions() -> None:
    host = await at_old()
    host.want(BUSY)
    await host.settle()
    found, entry = trail(host), host.world.history[-1]
    assert names(found) == WAY
    assert [(step.name, step.result) for step in found.steps] == [
        ("daemon-reload", "done"),
        ("reload web.service", "done"),
        ("restart trust.service", "done"),
        ("restart app.service", "done"),
    ]
    assert found.writes == 8
    assert [span.seconds is None for span in found.phases] == [False] * 5, "the release is complete as well"
    assert [change["key"] for change in entry.plan["changes"]][:2] == ["/etc/app/x", "/etc/ca/y"]
    assert entry.plan["actions"] == [
        "DaemonReload",
        "Reload web.service",
        "Restart trust.service",
        "Restart app.service",
    ]
    # The fake wall clock does not advance: the length is that of the steady clock.
    assert entry.seconds == 5.0
    assert host.record.trail == Trail()


async def test_an_update_of_the_os_has_both_boots() -> None:
    host = await os_hosts.at_old()
    host.world.stage_seconds = 40
    host.want(os_hosts.NEW)
    await host.settle()
    found = trail(host)
    assert names(found) == ["Staging", "Leasing", "Writing", "Acting", "Rebooting", "Verifying", "Releasing"]
    assert [boot.id for boot in found.boots] == ["boot-1", "boot-2"]
    assert [span.boot for span in found.phases] == [0] * 5 + [1] * 2
    assert found.boots[0].accepted is not None
    assert [(step.phase, step.result) for step in found.steps] == [("Staging", "done")]
    assert found.phases[0].seconds == 40.0


async def test_an_update_of_the_os_keeps_what_it_changed_over_the_boot() -> None:
    host = await os_hosts.at_old()
    host.want(os_hosts.NEW)
    await host.settle()
    plan = host.world.history[-1].plan
    assert plan["os"] == "kernel arguments same"
    changes = {change["key"]: change for change in plan["changes"]}
    assert [detail["what"] for detail in changes["osImageURL"]["details"]] == ["image"]


async def test_a_blocked_reboot_is_a_wait_with_its_holder() -> None:
    host = await at_old()
    host.world.blockers.append(Inhibitor("backup", "nightly", "backup (7)"))
    host.want(REBOOTING)
    await host.settle()
    waits = [wait for wait in trail(host).waits if wait.reason == Reason.REBOOT_BLOCKED]
    assert [wait.phase for wait in waits] == ["Rebooting"]
    assert "nightly" in waits[0].message
    assert waits[0].seconds == host.limits.inhibitor_wait


async def test_a_reverted_update_has_the_way_back() -> None:
    host = await at_old()
    host.world.units["app.service"].fail_restarts = 1
    host.limits = replace(host.limits, may_reboot=False)
    host.want(BUSY)
    await host.settle()
    found = trail(host)
    assert host.world.history[-1].outcome == "reverted"
    assert names(found) == ["Leasing", "Writing", "Acting", "Reverting", "Verifying", "Releasing"]
    assert "failed" in [step.result for step in found.steps]


@pytest.mark.long
@pytest.mark.parametrize("power", [False, True], ids=["kill -9", "power cut"])
@pytest.mark.parametrize("new", [BUSY, REBOOTING], ids=["units", "reboot"])
async def test_a_kill_at_any_point_loses_no_phase_before_it(new: MachineConfig, power: bool) -> None:
    host = await at_old()
    host.want(new)
    await host.settle()
    total, whole = host.world.calls, trail(host)
    for fuse in range(1, total + 1, 3):
        host = await at_old()
        host.want(new)
        await host.kill_at(fuse, power=power)
        # A boot takes the place of the actions, and a power cut amid them that of the reboot that would follow.
        spared = {"Rebooting"} if power and host.phase is Phase.ACTING else set()
        await host.settle()
        found = trail(host)
        assert names(found)[-1:] == ["Releasing"], fuse
        assert set(names(whole)) - spared <= set(names(found)), fuse
        if not power:
            assert {step.name for step in whole.steps} <= {step.name for step in found.steps}, fuse


async def test_an_event_of_the_history_has_no_details() -> None:
    host = await at_old()
    host.want(BUSY)
    await host.settle()
    ended = [event for event in host.world.events if isinstance(event, UpdateFinished)]
    assert ended[-1].entry == host.world.history[-1]
    asked = api(host)
    listed = json.loads(await asked.history(1))["updates"][0]
    assert {"plan", "trail"}.isdisjoint(listed)
    one = json.loads(await asked.update(listed["update_id"][:8]))
    assert one["schema"] == "nodeagent/update/v1"
    assert {name: one[name] for name in listed} == listed
    assert names(trail_from_dict(one["trail"])) == WAY
    assert json.loads(await asked.update("")) == one
