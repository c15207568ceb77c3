# SPDX-License-Identifier: Apache-2.0
"""Updates in a cluster, over the host in memory: who is asked, in which order, and what each answer leads to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.errors import Refused
from nodeagent.reasons import Reason
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.events import FallbackChosen, PhaseEntered, UpdateWaiting
from nodeagent.update.states import Phase
from tests.world import FakeUnit, os_host
from tests.world.cluster_host import (
    DRAIN,
    OLD,
    PODS,
    REBOOT,
    RESTART,
    ClusterHost,
    FakeNode,
    all_given_back,
    at_old,
    fresh,
)

pytestmark = pytest.mark.looptime

NMO = Holder("node-maintenance", "nm-1", "new disks", "12:00")
NO_QUORUM = Refused("etcd: two are needed", reason=Reason.ETCD_QUORUM_AT_RISK)
LEAVING = Refused("Machine a/b is being deleted", reason=Reason.NODE_LEAVING)


def waited_for(host: ClusterHost) -> list[str]:
    return [event.reason for event in host.world.events if isinstance(event, UpdateWaiting)]


def written(host: ClusterHost) -> bool:
    return host.world.disk.get("/etc/app/x") == RegularFile(b"2") or "/etc/moved" in host.world.disk


async def until(so: Callable[[], bool], seconds: float = 20_000) -> None:
    async with asyncio.timeout(seconds):
        while not so():
            await asyncio.sleep(1)


async def test_who_is_asked_in_which_order() -> None:
    host = await at_old()
    host.want(REBOOT)
    await host.settle()
    assert host.phase is Phase.IDLE
    order = ["slot", "lease", "drain", "reboot", "uncordon", "release lease", "release slot"]
    assert host.around.log == order
    assert host.around.killed == []
    all_given_back(host)


async def test_without_a_drain_in_the_plan_no_pod_is_moved() -> None:
    host = await at_old()
    host.want(RESTART)
    await host.settle()
    assert host.around.log == ["slot", "lease", "release lease", "release slot"]
    assert host.actions() == ["restart app.service"]


def hold(host: ClusterHost, holder: Holder | None) -> None:
    host.world.holder = holder


OBSTACLES: dict[str, Callable[[ClusterHost, bool], None]] = {
    "LeaseHeld": lambda host, there: hold(host, NMO if there else None),
    "SlotHeld": lambda host, there: setattr(host.around, "slot", "other" if there else ""),
    "NodeLeaving": lambda host, there: setattr(host.around, "gate", LEAVING if there else None),
    "EtcdQuorumAtRisk": lambda host, there: setattr(host.around, "guard", NO_QUORUM if there else None),
    "KubeUnreachable": lambda host, there: host.around.go_away() if there else host.around.come_back(),
}


@pytest.mark.parametrize("reason", OBSTACLES)
async def test_waits_takes_nothing_and_asks_no_more_often_than_set(reason: str) -> None:
    host = await at_old()
    OBSTACLES[reason](host, True)
    host.want(REBOOT)
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(3600)
    assert (host.phase, waited_for(host)) == (Phase.LEASING, [reason])
    assert (host.around.hook, host.around.cordon) == (False, None)
    assert host.around.log == [], "not even for a moment: that would keep a slot from other nodes"
    times = sorted({when for when, _ in host.around.asked})
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert min(pauses) >= host.limits.lease_retry
    assert max(pauses) <= 90, "and not so rarely that the status looks stale"
    assert len(host.around.asked) <= 400, "one in nine seconds"
    OBSTACLES[reason](host, False)
    await task
    assert host.phase is Phase.IDLE
    all_given_back(host)


async def test_a_staging_slot_is_held_for_the_staging_only() -> None:
    host = ClusterHost(os_host.os_host().world)
    host.want(os_host.OLD)
    await host.settle()
    host.world.stage_seconds = 600
    hold(host, NMO)
    host.want(os_host.NEW)
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(600)
    assert (host.phase, waited_for(host), host.around.staging_slot) == (Phase.STAGING, ["LeaseHeld"], "")
    hold(host, None)
    await until(lambda: host.around.staging_slot != "")
    assert (host.world.holder, host.around.slot) == (None, "")
    await until(lambda: host.phase is Phase.DRAINING)
    assert host.around.staging_slot == ""
    await task
    assert host.phase is Phase.IDLE
    all_given_back(host)


async def draining(new: MachineConfig = REBOOT) -> tuple[ClusterHost, asyncio.Task[None]]:
    """Return in the middle of a drain that a budget blocks."""
    host = await at_old()
    host.around.stuck = True
    host.want(new)
    task = asyncio.create_task(host.settle())
    await until(lambda: host.around.cordon is not None)
    await asyncio.sleep(30)
    assert host.phase is Phase.DRAINING
    return host, task


async def test_a_lease_that_is_stolen_in_the_drain_stops_it_and_the_cordon_stays_for_the_thief() -> None:
    host, task = await draining()
    host.around.stuck = False
    hold(host, NMO)
    await asyncio.sleep(200)
    assert (host.phase, written(host)) == (Phase.RELEASING, False)
    assert host.around.pods == list(PODS), "no eviction without the lease"
    assert host.around.cordon is not None
    assert waited_for(host)[-1] == "LeaseHeld"
    hold(host, None)
    await task
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "LeaseLost")
    all_given_back(host)
    await host.settle()  # Put off, not rejected: the next turn begins again.
    assert (host.phase, written(host)) == (Phase.IDLE, True)


async def test_a_lease_that_is_stolen_after_the_drain_stops_it_before_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    drain = FakeNode.drain

    async def robbed(self: FakeNode, operation: str, deadline: float) -> None:
        await drain(self, operation, deadline)
        self.world.holder = NMO

    monkeypatch.setattr(FakeNode, "drain", robbed)
    host = await at_old()
    host.want(REBOOT)
    task = asyncio.create_task(host.settle())
    await until(lambda: host.phase is Phase.RELEASING)
    assert not written(host)
    monkeypatch.setattr(FakeNode, "drain", drain)
    hold(host, None)
    await task
    assert (host.phase, written(host)) == (Phase.DEGRADED, False)
    all_given_back(host)


async def test_a_lease_that_is_deleted_in_the_drain_cancels_the_update() -> None:
    host, task = await draining()
    hold(host, None)
    await task
    assert (host.phase, host.record.reason, written(host)) == (Phase.DEGRADED, "LeaseLost", False)
    all_given_back(host)
    host.around.stuck = False
    await host.settle()
    assert not written(host), "it is not taken again without being asked for"
    await host.ask()
    assert (host.phase, written(host)) == (Phase.IDLE, True)


@pytest.mark.finding(
    "peers: leases of medik8s",
    "A holder that gives back a lease which it no longer has does not cancel an update that has written nothing.",
)
async def test_a_lease_that_its_former_holder_deletes_does_not_cancel_the_update() -> None:
    host, task = await draining()
    host.around.why_lost = "LeaseGivenBack"
    hold(host, None)
    await task
    assert (host.phase, host.record.reason, written(host)) == (Phase.DEGRADED, "LeaseGivenBack", False)
    all_given_back(host)
    host.around.stuck = False
    await host.settle()
    assert (host.phase, written(host)) == (Phase.IDLE, True)


async def test_a_slot_freed_by_an_operator_cancels_the_update() -> None:
    host, task = await draining()
    host.around.slot = "other"
    host.around.stuck = False
    await task
    assert (host.phase, host.record.reason, written(host)) == (Phase.DEGRADED, "SlotLost", False)
    assert host.around.slot == "other"
    host.around.slot = ""
    all_given_back(host)


async def test_who_comes_in_the_drain_without_a_lease_stops_it_before_writing() -> None:
    host, task = await draining()
    host.around.gate = LEAVING
    host.around.stuck = False
    await task
    assert (host.phase, host.record.reason, written(host)) == (Phase.DEGRADED, "NodeLeaving", False)
    all_given_back(host)


async def test_a_newer_config_in_the_drain_takes_over() -> None:
    host, task = await draining()
    host.around.stuck = False
    host.want(RESTART)
    await task
    assert [(entry.to_name, entry.outcome) for entry in host.world.history] == [
        ("old", "done"),
        ("reboot", "superseded"),
        ("restart", "done"),
    ]
    assert host.actions() == ["restart app.service"]
    all_given_back(host)


async def test_a_look_at_the_same_config_does_not_end_the_drain() -> None:
    host, task = await draining()
    assert host.loop is not None
    host.loop.look_again()
    await asyncio.sleep(60)
    assert host.phase is Phase.DRAINING
    host.around.stuck = False
    await task
    assert host.around.log == ["slot", "lease", "drain", "reboot", "uncordon", "release lease", "release slot"]


async def test_an_api_server_that_is_away_before_writing_is_waited_for() -> None:
    host, task = await draining()
    host.around.go_away()
    host.around.stuck = False
    await asyncio.sleep(300)
    assert not written(host)
    host.around.come_back()
    await task
    assert host.phase is Phase.IDLE
    all_given_back(host)


async def test_a_lease_that_runs_out_unseen_before_writing_is_waited_for() -> None:
    host, task = await draining()
    host.around.go_away()
    await asyncio.sleep(1200)
    assert (host.phase, written(host)) == (Phase.DRAINING, False)
    assert "LeaseExpired" in waited_for(host)
    host.around.come_back()
    host.around.stuck = False
    await task
    assert (host.phase, host.around.killed) == (Phase.IDLE, [])
    all_given_back(host)


async def test_an_api_server_that_is_away_after_writing_keeps_nothing_half_way() -> None:
    host = await at_old()
    host.want(RESTART)
    task = asyncio.create_task(host.settle())
    await until(lambda: written(host))
    host.around.go_away()
    await until(lambda: host.phase is Phase.RELEASING)
    assert host.actions() == ["restart app.service"]
    await asyncio.sleep(7200)
    assert host.phase is Phase.RELEASING
    assert host.configs[host.world.current].name == "restart", "promoted; what waits is giving back"
    host.around.come_back()
    await task
    assert host.phase is Phase.IDLE
    all_given_back(host)


def block(host: ClusterHost) -> None:
    """Holds the update up right before its reboot."""
    from nodeagent.update.ports.system import Inhibitor

    host.world.blockers = [Inhibitor("backup", "copying", "tar (7)")]
    host.limits = replace(host.limits, inhibitor_wait=7 * 86400)


async def test_a_reboot_goes_on_while_the_lease_lasts() -> None:
    host = await at_old()
    block(host)
    host.want(REBOOT)
    task = asyncio.create_task(host.settle())
    await until(lambda: host.phase is Phase.REBOOTING)
    host.around.go_away()
    await asyncio.sleep(60)
    host.world.blockers = []
    await until(lambda: host.world.boot == 2)
    host.around.come_back()
    await task
    assert host.phase is Phase.IDLE


async def test_nothing_is_rebooted_under_a_lease_that_ran_out() -> None:
    host = await at_old()
    block(host)
    host.want(REBOOT)
    task = asyncio.create_task(host.settle())
    await until(lambda: host.phase is Phase.REBOOTING)
    host.around.go_away()
    await asyncio.sleep(1200)
    host.world.blockers = []
    await asyncio.sleep(7200)
    assert (host.phase, host.world.boot) == (Phase.REBOOTING, 1)
    assert waited_for(host)[-1] == "LeaseExpired"
    host.around.come_back()
    await task
    assert (host.phase, host.world.boot) == (Phase.IDLE, 2)


async def test_a_lease_that_is_stolen_before_the_reboot_stops_it_half_way() -> None:
    host = await at_old()
    block(host)
    host.want(REBOOT)
    task = asyncio.create_task(host.settle())
    await until(lambda: host.phase is Phase.REBOOTING)
    hold(host, NMO)
    host.world.blockers = []
    await task
    assert (host.phase, host.record.reason, host.world.boot) == (Phase.DEGRADED, "LeaseLost", 1)
    assert (host.around.slot, host.around.cordon) == (host.record.update_id,) * 2
    host.want(OLD)
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(600)
    assert host.phase is Phase.LEASING
    hold(host, None)
    await task
    assert host.phase is Phase.IDLE
    all_given_back(host)


async def warned(seconds: float) -> tuple[ClusterHost, asyncio.Task[None]]:
    """Users have been warned of the reboot, and have so long."""
    host = await at_old()
    host.world.logged_in = True
    host.limits = replace(host.limits, warn_users=seconds)
    host.want(REBOOT)
    task = asyncio.create_task(host.settle())
    await until(lambda: host.world.warned > 0)
    waits = [event for event in host.world.events if isinstance(event, UpdateWaiting)][-1]
    assert waits.reason == Reason.USERS_WARNED
    assert waits.message.startswith("logged-in users are warned; the reboot follows at 20")
    return host, task


@pytest.mark.finding(
    "leases: lost while users are warned",
    "A lease that is lost while users are warned of a reboot stops it, and the warning is cancelled.",
)
@pytest.mark.parametrize("seconds", [3600.0, 4.0])
@pytest.mark.parametrize("holder", [NMO, None])
async def test_a_lease_that_is_lost_while_users_are_warned_stops_the_reboot(
    seconds: float, holder: Holder | None
) -> None:
    host, task = await warned(seconds)
    hold(host, holder)
    began = asyncio.get_running_loop().time()
    await task
    assert asyncio.get_running_loop().time() - began < 60, "users do not have to wait for a reboot that does not come"
    assert (host.phase, host.record.reason, host.world.boot) == (Phase.DEGRADED, "LeaseLost", 1)


@pytest.mark.finding(
    "leases: lost while users are warned", "A lease that is lost while an inhibitor is waited for ends the wait."
)
async def test_a_lease_that_is_lost_while_an_inhibitor_is_waited_for_ends_the_wait() -> None:
    host = await at_old()
    block(host)
    host.want(REBOOT)
    task = asyncio.create_task(host.settle())
    await until(lambda: host.phase is Phase.REBOOTING)
    hold(host, NMO)
    await asyncio.wait_for(task, 60)
    assert host.world.blockers, "still there"
    assert (host.phase, host.record.reason, host.world.boot) == (Phase.DEGRADED, "LeaseLost", 1)


@pytest.mark.finding(
    "leases: lost while users are warned",
    "The lease is checked again right before logind is called, after the warning; slot and etcd as well.",
)
async def test_what_changes_while_users_are_warned_is_seen_before_the_reboot() -> None:
    host, task = await warned(3600)
    host.around.guard = NO_QUORUM
    await asyncio.sleep(7200)
    assert (host.phase, host.world.boot) == (Phase.REBOOTING, 1)
    assert waited_for(host)[-1] == "EtcdQuorumAtRisk"
    host.around.guard = None
    await task
    assert (host.phase, host.world.boot) == (Phase.IDLE, 2)


async def test_an_api_server_that_is_away_while_users_are_warned_is_no_lost_lease() -> None:
    host, task = await warned(120)
    host.around.go_away()
    await until(lambda: host.world.boot == 2)
    host.around.come_back()
    await task
    assert host.phase is Phase.IDLE


async def test_the_guard_is_asked_right_before_the_reboot() -> None:
    host = await at_old()
    block(host)
    host.want(REBOOT)
    task = asyncio.create_task(host.settle())
    await until(lambda: host.phase is Phase.REBOOTING)
    host.around.guard = NO_QUORUM
    host.world.blockers = []
    await asyncio.sleep(7200)
    assert host.world.boot == 1
    assert waited_for(host)[-1] == "EtcdQuorumAtRisk"
    host.around.guard = None
    await task
    assert host.world.boot == 2


async def test_after_the_deadline_of_the_drain_it_is_rebooted_as_set() -> None:
    host, task = await draining()
    await task
    assert host.phase is Phase.IDLE
    assert host.around.killed == list(PODS)
    (late,) = [event for event in host.world.events if isinstance(event, FallbackChosen)]
    assert late.reason == "DrainTimedOut"
    assert host.world.history[-1].outcome == "done", "the reboot was planned"
    all_given_back(host)


async def test_after_the_deadline_a_plan_without_a_reboot_reboots_instead() -> None:
    host, task = await draining(DRAIN)
    await task
    assert host.actions() == ["reboot"]
    assert host.world.history[-1].outcome == "done-after-fallback"
    all_given_back(host)


async def test_after_the_deadline_nothing_is_rebooted_while_the_guard_says_no() -> None:
    host, task = await draining()
    host.around.guard = NO_QUORUM
    await asyncio.sleep(3 * 3600)
    assert (host.phase, written(host)) == (Phase.DRAINING, False)
    assert waited_for(host)[-1] == "EtcdQuorumAtRisk"
    host.around.guard = None
    await task
    assert (host.phase, host.around.killed) == (Phase.IDLE, list(PODS))


async def test_after_the_deadline_it_is_given_up_as_set_and_tried_later() -> None:
    host = await at_old()
    host.limits = replace(host.limits, drain_or_reboot=False)
    host.around.stuck = True
    host.want(REBOOT)
    await host.settle()
    assert (host.phase, host.record.reason, written(host)) == (Phase.DEGRADED, "DrainTimedOut", False)
    assert "db/postgres-0" in host.record.message
    all_given_back(host)
    host.around.stuck = False
    await host.settle()
    assert (host.phase, host.around.killed) == (Phase.IDLE, [])


async def test_a_restart_of_the_agent_keeps_the_deadline() -> None:
    host, task = await draining()
    began = asyncio.get_running_loop().time()
    await asyncio.sleep(1800)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert host.phase is Phase.DRAINING
    await asyncio.sleep(900)
    await host.settle()
    assert host.world.boot == 2
    rebooted = next(event for event in host.world.events if isinstance(event, FallbackChosen))
    assert rebooted.reason == "DrainTimedOut"
    assert host.around.log.count("drain") == 2
    drained = [when - began for when, what in host.around.asked if what == "drain"]
    assert 3400 <= max(drained) <= 3660


async def test_a_fallback_reboot_drains_first() -> None:
    host = await at_old()
    host.world.units["app.service"] = FakeUnit(bad_until_boot=2)
    host.want(RESTART)
    await host.settle()
    assert host.actions() == ["restart app.service", "reboot"]
    assert host.around.log == ["slot", "lease", "drain", "reboot", "uncordon", "release lease", "release slot"]
    assert host.world.history[-1].outcome == "done-after-fallback"
    assert host.around.killed == []
    entered = [event for event in host.world.events if isinstance(event, PhaseEntered)]
    messages = [event.message for event in entered if event.about.phase in (Phase.DRAINING, Phase.REBOOTING)]
    # The drain of the update has none: the cause of the fallback is that of its drain and of its reboot.
    assert messages[-1] == messages[-2] != ""


async def test_unmovable_pods_do_not_hold_a_fallback_reboot_without_end() -> None:
    host = await at_old()
    host.around.stuck = True
    host.world.units["app.service"] = FakeUnit(bad_until_boot=2)
    host.want(RESTART)
    await host.settle()
    assert (host.phase, host.around.killed) == (Phase.IDLE, list(PODS))
    assert host.world.history[-1].outcome == "done-after-fallback"


class Picky(FakeUnit):
    """Fails as long as it is given the new config."""

    host: ClusterHost

    @property
    def bad_until_boot(self) -> int:
        return 99 if self.host.world.disk.get("/etc/app/x") == RegularFile(b"2") else 0

    @bad_until_boot.setter
    def bad_until_boot(self, value: int) -> None: ...


async def picky() -> ClusterHost:
    host = await at_old()
    Picky.host = host
    host.world.units["app.service"] = Picky()
    return host


@pytest.mark.parametrize("reason", ["guard", "abort", "away"])
async def test_without_its_fallback_reboot_an_update_goes_back(reason: str) -> None:
    host = await picky()
    match reason:
        case "guard":
            host.around.guard = NO_QUORUM
        case "abort":
            host.around.stuck = True
            host.limits = replace(host.limits, drain_or_reboot=False)
    host.want(RESTART)
    task = asyncio.create_task(host.settle())
    if reason == "away":
        await until(lambda: "restart app.service" in host.actions())
        host.around.go_away()
        await until(lambda: host.phase is Phase.RELEASING)
        host.around.come_back()
    await task
    assert (host.phase, host.record.reason, host.world.boot) == (Phase.DEGRADED, "Reverted", 1)
    assert host.actions() == ["restart app.service", "restart app.service"]
    all_given_back(host)


async def test_a_node_that_failed_keeps_its_slot_and_the_next_config_gives_it_back() -> None:
    host = await picky()
    host.limits = replace(host.limits, revert=False)
    host.want(RESTART)
    await host.settle()
    assert host.phase is Phase.DEGRADED
    failed = host.record.update_id
    assert (host.around.slot, host.around.cordon) == (failed, failed)
    assert host.world.holder is not None
    host.want(OLD)
    await host.settle()
    assert host.phase is Phase.IDLE
    all_given_back(host)


async def test_a_foreign_cordon_stays() -> None:
    host = await at_old()
    host.around.cordon = "an admin"
    host.want(REBOOT)
    await host.settle()
    assert (host.phase, host.around.cordon) == (Phase.IDLE, "an admin")


async def test_a_holder_after_a_boot_that_took_too_long_keeps_the_cordon() -> None:
    """The lease expired during the boot, and another holder has taken it."""
    host = await at_old()
    host.want(REBOOT)
    task = asyncio.create_task(host.settle())
    await until(lambda: host.world.boot == 2)
    hold(host, NMO)
    await asyncio.sleep(600)
    assert host.phase is Phase.RELEASING
    assert host.around.cordon is not None
    hold(host, None)
    await task
    assert host.phase is Phase.IDLE
    all_given_back(host)


@pytest.mark.finding(
    "peers: nodes that end cordoned", "A node that ends cordoned says that a controller needs it uncordoned."
)
async def test_a_node_that_ends_cordoned_says_what_has_to_be_done_with_it() -> None:
    host = await at_old()
    block(host)
    host.want(REBOOT)
    task = asyncio.create_task(host.settle())
    await until(lambda: host.phase is Phase.REBOOTING)
    hold(host, NMO)
    await task
    assert host.record.message.endswith("; uncordon it")


@pytest.mark.parametrize("away", [False, True], ids=["", "the API server is away"])
async def test_a_staging_that_is_late_gives_its_slot_back(away: bool) -> None:
    image = os_host.os_host().world
    host = fresh()
    host.world.deployments, host.world.shipped = image.deployments, image.shipped
    host.world.disk |= image.disk
    host.want(os_host.OLD)
    await host.settle()
    host.world.stage_seconds = 4 * 3600
    host.want(os_host.NEW)
    host.world.rebooting = asyncio.Event()
    turn = asyncio.create_task(host.build().turn())
    await asyncio.sleep(3 * 3600 - 60)
    assert host.around.staging_slot == host.record.update_id
    if away:
        host.around.go_away()
        await asyncio.sleep(300)
        host.wanted = ""
        host.around.come_back()
    await turn
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "PhaseLate")
    all_given_back(host)
