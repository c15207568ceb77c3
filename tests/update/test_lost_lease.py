# SPDX-License-Identifier: Apache-2.0
"""The lease, the slot and the quorum between the first write and the reboot: what is lost stops the next step."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from nodeagent.core.config.file_tree import RegularFile
from nodeagent.errors import Refused
from nodeagent.reasons import Reason
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.system import Inhibitor
from nodeagent.update.stages import admission
from nodeagent.update.states import Phase
from tests.world import FakeUnit, FakeUnits
from tests.world.cluster_host import REBOOT, RESTART, ClusterHost, at_old, config
from tests.world.run import until

pytestmark = pytest.mark.looptime

THIEF = Holder("node-maintenance", "nm-1", "new disks", "12:00")
NO_QUORUM = Refused("etcd: two are needed", reason=Reason.ETCD_QUORUM_AT_RISK)
TWO = config("two", {"/etc/app/x": "2", "/etc/ca/x": "2", "/etc/web/x": "1"})
"""Two restarts: of app.service and of trust.service."""


def lose_lease_at_the_first_restart(host: ClusterHost, monkeypatch: pytest.MonkeyPatch) -> None:
    # A check counts for some seconds; here each one counts.
    monkeypatch.setattr(admission, "RECENT", -1.0)
    restart = FakeUnits.restart

    async def and_lose(self: FakeUnits, unit: str, deadline: float, *, since: str | None = None) -> str:
        answer = await restart(self, unit, deadline, since=since)
        host.world.holder = THIEF
        return answer

    monkeypatch.setattr(FakeUnits, "restart", and_lose)


@pytest.mark.finding(
    "decisions: lease before each action", "The lease is checked before each action, not once for all of them."
)
@pytest.mark.finding(
    "decisions: lost leases", "After a lost lease there is neither a reboot nor a revert: the files stay."
)
async def test_a_lease_that_is_lost_between_two_actions_stops_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    host = await at_old()
    lose_lease_at_the_first_restart(host, monkeypatch)
    host.want(TWO)
    await host.settle()
    assert len([action for action in host.actions() if action.startswith("restart")]) == 1
    assert (host.phase, host.record.reason, host.world.boot) == (Phase.DEGRADED, Reason.LEASE_LOST, 1)
    assert host.world.disk["/etc/app/x"] == RegularFile(b"2")
    assert host.world.disk["/etc/ca/x"] == RegularFile(b"2")
    assert host.world.holder == THIEF


@pytest.mark.finding(
    "decisions: lost leases", "After a lost lease there is neither a reboot nor a revert: the files stay."
)
async def test_a_failure_that_meets_a_lost_lease_changes_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    host = await at_old()
    lose_lease_at_the_first_restart(host, monkeypatch)
    host.world.units["app.service"] = FakeUnit(bad_until_boot=9)
    host.world.units["trust.service"] = FakeUnit()
    host.want(TWO)
    await host.settle()
    assert (host.phase, host.record.reason, host.world.boot) == (Phase.DEGRADED, Reason.LEASE_LOST, 1)
    assert host.world.disk["/etc/app/x"] == RegularFile(b"2")


@pytest.mark.finding("decisions: slot before a reboot", "The slot is checked right before the reboot.")
async def test_a_slot_that_an_admin_frees_after_the_writing_stops_the_reboot() -> None:
    host = await at_old()
    host.world.blockers = [Inhibitor("backup", "copying", "tar (7)")]
    host.limits = replace(host.limits, inhibitor_wait=86400)
    host.want(REBOOT)
    task = asyncio.create_task(host.settle())
    await until(host, Phase.REBOOTING)
    host.around.slot = ""
    host.world.blockers = []
    await task
    assert (host.phase, host.record.reason, host.world.boot) == (Phase.DEGRADED, Reason.SLOT_LOST, 1)


@pytest.mark.finding(
    "decisions: etcd before a fallback",
    "Etcd decides before the drain of a fallback: no pod leaves for a reboot that it does not allow.",
)
async def test_no_pod_leaves_for_a_fallback_that_etcd_does_not_allow() -> None:
    host = await at_old()
    host.world.units["app.service"].bad_until_boot = 9
    host.around.guard = NO_QUORUM
    host.want(RESTART)
    await host.settle()
    assert host.world.boot == 1
    assert host.actions()[0] == "restart app.service", "the plan itself does not stop the node"
    assert "drain" not in host.around.log
