# SPDX-License-Identifier: Apache-2.0
"""A deployment whose kernel does not start: the boot loader counts its boots, and the update is reverted.

The kill tests of updates and of the way back run with a boot loader that counts as well (``test_os_kills``).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from nodeagent.core.config.file_tree import expand
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.errors import ServiceUnavailable, Terminal
from nodeagent.features.boot_counting.decide import TRIES
from nodeagent.features.boot_counting.reasons import BootCountingReason
from nodeagent.reasons import Reason
from nodeagent.update.history.trail import trail_from_dict
from nodeagent.update.ports.events import PhaseEntered, Warned
from nodeagent.update.states import Phase
from tests.features.boot_counting.counting import counting
from tests.world import FakeUnit, Fault, Killed, kill_points, os_host
from tests.world.os_host import A_DIGEST, B_DIGEST, FIRST, NEW, OLD, bad_on, booted_digest, managed, on
from tests.world.run import Host, kinds, until

pytestmark = pytest.mark.looptime

OTHER = on("c", "other", {"/etc/app/x": "3"})
HEALTH_CHECK = "greenboot-healthcheck"


async def at_old(**units: FakeUnit) -> Host:
    host = os_host.os_host(**units)
    host.guards = [counting(host.world)]
    host.limits = replace(host.limits, verify_timeout=4, settle=2)
    host.want(OLD)
    await host.settle()
    host.world.done.clear()
    host.world.events.clear()
    host.world.calls = host.world.boots = 0
    return host


async def panicking() -> Host:
    host = await at_old()
    host.world.panics.add(B_DIGEST)
    host.want(NEW)
    return host


def unwritable() -> Fault:
    return Fault("write grubenv", Terminal("read-only", reason=BootCountingReason.BOOT_COUNT_FAILED), times=None)


def assert_uncounted(host: Host) -> None:
    assert (host.world.boot_counter, host.world.counted) == (None, "")


def assert_back(host: Host, new: MachineConfig = NEW) -> None:
    """A runs and boots next, with the files of OLD, and no boot is counted."""
    world = host.world
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "Reverted"), host.record
    assert booted_digest(world) == A_DIGEST
    assert world.deployments[0].digest == A_DIGEST
    assert managed(world, OLD, new) == expand(OLD)
    assert world.holder is None
    assert_uncounted(host)


async def test_a_good_update_is_counted_until_it_is_verified() -> None:
    host = await at_old()
    seen: list[tuple[int | None, str]] = []

    class Looking(FakeUnit):
        @property
        def bad_until_boot(self) -> int:
            seen.append((host.world.boot_counter, host.world.counted))
            return 0

        @bad_until_boot.setter
        def bad_until_boot(self, value: int) -> None: ...

    host.world.units["app.service"] = Looking()
    host.want(NEW)
    await host.settle()
    assert host.phase is Phase.IDLE
    ((left, counted),) = {one for one in seen if one[1]}
    assert (left, counted) == (TRIES - 1, host.world.deployments[0].id)
    assert_uncounted(host)
    assert host.world.boot_success


async def test_a_kernel_that_panics_comes_back_and_is_rejected() -> None:
    host = await panicking()
    await host.settle()
    assert_back(host)
    ended = host.world.history[-1]
    assert (ended.outcome, ended.reason) == ("reverted", "BootFailed")
    assert [d.digest for d in host.world.deployments] == [A_DIGEST], "it would boot next time"
    assert host.actions().count("reboot") == 2, "forward, and once for the restored files"
    boots = host.world.boots
    host.want(replace(NEW, name="the same by another name"))
    assert await host.build().turn() is not None
    assert (host.phase, host.record.reason, host.world.boots) == (Phase.DEGRADED, "ConfigRejected", boots)


async def test_another_config_is_applied_afterwards() -> None:
    host = await panicking()
    await host.settle()
    host.want(OTHER)
    await host.settle()
    assert (host.phase, host.world.history[-1].outcome) == (Phase.IDLE, "done")
    assert_uncounted(host)


@pytest.mark.long
@pytest.mark.parametrize("power", [False, True], ids=["kill -9", "power cut"])
async def test_killed_at_every_point_of_a_boot_that_fails(power: bool) -> None:
    whole = await panicking()
    await whole.settle()
    for fuse in kill_points(whole.world.calls, case=power):
        host = await panicking()
        host.world.fuse = fuse
        try:
            for _ in range(6):
                if await host._live():
                    break
        except Killed:
            if power:
                host.world.power_cut()
        host.world.fuse = -1
        await host.settle(lives=20)
        assert_back(host)
        assert host.world.history[-1].reason == "BootFailed", f"fuse {fuse}"


@pytest.mark.long
async def test_a_power_cut_never_boots_a_third_deployment() -> None:
    """With a pinned deployment behind the running one, the count must not lead to that."""
    pinned = replace(FIRST, id="os-pppp.0", checksum="pinned", digest="sha256:" + "d" * 64, booted=False, pinned=True)

    async def prepared() -> Host:
        host = await panicking()
        # It panics as well: a boot into it is seen as a host that comes up late, or not at all.
        host.world.panics.add(pinned.digest)
        return host

    whole = await prepared()
    await whole.settle()
    for fuse in kill_points(whole.world.calls):
        host = await prepared()
        host.world.fuse = fuse
        try:
            for _ in range(6):
                if host.world.boots and pinned not in host.world.deployments:
                    host.world.deployments.append(pinned)
                if await host._live():
                    break
        except Killed:
            if pinned not in host.world.deployments:
                host.world.deployments.append(pinned)
            host.world.power_cut()
        host.world.fuse = -1
        await host.settle(lives=20)
        assert (booted_digest(host.world), host.world.deployments[0].digest) == (A_DIGEST, A_DIGEST), f"fuse {fuse}"
        assert_uncounted(host)


async def test_a_way_back_from_userspace_counts_nothing() -> None:
    host = await at_old()
    bad_on(host.world, B_DIGEST)
    host.want(NEW)
    await host.settle()
    assert_back(host)
    assert host.world.history[-1].reason == "UnitUnhealthy"


async def test_power_cuts_during_the_boot_are_no_verdict() -> None:
    host = await at_old()
    host.want(NEW)
    assert not await host._live()
    for _ in range(TRIES - 1):
        host.world.power_cut()
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)
    assert_uncounted(host)


async def test_a_host_that_cannot_count_reboots_and_says_so() -> None:
    host = await at_old()
    host.world.counts = False
    host.want(NEW)
    await host.settle()
    assert host.phase is Phase.IDLE
    assert any("not counted" in event.message for event in host.world.events if isinstance(event, PhaseEntered))
    trail = trail_from_dict(host.world.history[-1].trail)
    assert trail.phases, "it has a trail"
    assert not [wait for wait in trail.waits if "counted" in wait.message], "nothing waits for that"


async def test_a_count_that_cannot_begin_stops_nothing() -> None:
    host = await at_old()
    host.world.faults.append(unwritable())
    host.want(NEW)
    await host.settle()
    assert host.phase is Phase.IDLE
    assert "BootCountFailed" in kinds(host, Warned)


async def test_a_count_that_cannot_end_is_degraded() -> None:
    """Reverting would change the same variables, and the boot loader would undo that later."""
    host = await at_old()
    fault = unwritable()
    fault.when = lambda: host.world.boot > 1
    host.world.faults.append(fault)
    host.want(NEW)
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "BootCountFailed")
    assert booted_digest(host.world) == B_DIGEST
    host.world.repair("write grubenv")
    await host.ask()
    assert host.phase is Phase.IDLE
    assert_uncounted(host)


async def test_systemd_without_an_answer_is_waited_for() -> None:
    host = await at_old()
    lost = ServiceUnavailable("no answer", reason=Reason.BUS_TIMEOUT)
    host.world.faults.append(Fault("write grubenv", lost, times=2, when=lambda: host.world.boot > 1))
    host.want(NEW)
    await host.settle()
    assert host.phase is Phase.IDLE
    assert_uncounted(host)


async def test_a_deployment_that_was_not_finalized_is_not_counted() -> None:
    host = await at_old()
    host.world.faults.append(Fault("finalize", OSError("no space left in /boot")))
    host.want(NEW)
    await host.settle()
    assert_back(host)


async def test_a_deployment_that_is_lost_is_not_counted_while_it_is_staged_again() -> None:
    host = await at_old()
    host.world.faults.append(Fault("finalize"))
    host.world.stage_seconds = 60
    host.want(NEW)
    assert not await host._live()
    life = asyncio.create_task(host._live())
    await until(host, Phase.STAGING)
    assert_uncounted(host)
    assert not await life
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)


async def test_a_count_that_an_update_left_ends_at_rest() -> None:
    host = await at_old()
    host.world.boot_counter, host.world.counted = 2, "os-gone.1"
    await host.settle()
    assert_uncounted(host)


async def test_the_count_of_another_program_is_left_alone() -> None:
    host = await at_old()
    host.world.boot_counter = 2
    await host.settle()
    assert host.world.boot_counter == 2


# -- greenboot --------------------------------------------------------------------------------------------------------


def health_check(host: Host, active: str) -> FakeUnit:
    unit = FakeUnit(type="oneshot", active=active, file="disabled", result="exit-code")
    host.world.units[f"{HEALTH_CHECK}.service"] = unit
    return unit


async def test_a_failed_health_check_of_greenboot_fails_the_update() -> None:
    host = await at_old()
    host.want(NEW)
    assert not await host._live()
    health_check(host, "failed")
    await host.settle()
    assert_back(host)
    ended = host.world.history[-1]
    assert (ended.reason, host.world.units["app.service"].active) == ("GreenbootFailed", "active")


async def test_a_health_check_that_never_ends_fails_the_update() -> None:
    host = await at_old()
    host.want(NEW)
    assert not await host._live()
    health_check(host, "activating")
    await host.settle()
    assert_back(host)
    assert host.world.history[-1].reason == "GreenbootFailed"


async def test_a_health_check_that_passed_is_no_obstacle() -> None:
    host = await at_old()
    host.want(NEW)
    assert not await host._live()
    health_check(host, "active")
    await host.settle()
    assert host.phase is Phase.IDLE


@pytest.mark.parametrize("installed", [True, False])
async def test_a_rollback_by_greenboot_is_no_choice_at_the_boot_menu(installed: bool) -> None:
    host = await at_old()
    host.want(NEW)
    assert not await host._live()
    # It rolls back, ends its count, and reboots.
    order = host.world.deployments
    order[0], order[1] = order[1], order[0]
    host.world.boot_counter = None
    host.world.power_cut()
    if installed:
        health_check(host, "active")
    await host.settle()
    assert_back(host)
    assert host.world.history[-1].reason == ("BootFailed" if installed else "OldDeploymentBooted")
