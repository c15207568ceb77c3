# SPDX-License-Identifier: Apache-2.0
"""Another program soft-reboots the host at every single point of an update: the boot id stays, and every
service starts again.

The update ends well each time. Where it needs a boot of the kernel there is one after the files were written; where it
does not there is none.
"""

from __future__ import annotations

import asyncio

import pytest

from nodeagent.agent.report.report import Report
from nodeagent.agent.supervise import SoftRebootWatch
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.deployment import staged, target_between
from nodeagent.errors import Refused
from nodeagent.reasons import Reason
from nodeagent.report.status import Status
from nodeagent.report.status_line import line
from nodeagent.update.ports.events import Warned
from nodeagent.update.stages.os_deployments import HostDeployments
from nodeagent.update.states import Phase
from tests.update import test_kills, test_os_kills
from tests.world import FakeDeployments, Fault, Killed, kill_points
from tests.world.os_host import KARGS, NEW
from tests.world.run import Host

pytestmark = [
    pytest.mark.looptime,
    pytest.mark.finding(
        "OS: soft reboots",
        "After a soft reboot by another program, in any phase, the update ends well; what needs the kernel "
        "gets a full reboot.",
    ),
]


async def disturb(host: Host, fuse: int) -> None:
    """Kill at that call, also while the host goes down for a reboot by the agent."""
    host.world.calls, host.world.fuse = 0, fuse
    try:
        for _ in range(6):
            if await host._live():
                break
    except Killed:
        host.world.soft_reboot()
    host.world.fuse = -1


async def go_to_reboot(host: Host) -> None:
    """Run until logind accepted a shutdown that never happens. Then the agent is killed."""
    host.world.faults.append(Fault("ignored reboot", times=None))
    life = asyncio.create_task(host._live())
    while host.loop is None or not host.loop.executor.reboot_accepted:
        await asyncio.sleep(0.1)
    life.cancel()
    await asyncio.gather(life, return_exceptions=True)
    host.world.repair("ignored reboot")


@pytest.mark.parametrize(
    ("new", "reboots"), [(test_kills.BUSY, 0), (test_kills.REBOOTING, 1)], ids=["services", "kernel"]
)
async def test_an_update_of_files(new: MachineConfig, reboots: int) -> None:
    host = await test_kills.at_old()
    host.want(new)
    await host.settle()
    total = host.world.calls
    assert total > 10
    for fuse in kill_points(total):
        host = await test_kills.at_old()
        host.want(new)
        await disturb(host, fuse)
        await host.settle()
        test_kills.assert_converged(host, new)
        assert host.actions().count("reboot") == reboots, f"a soft reboot at call {fuse}: {host.actions()}"
        assert [entry.outcome for entry in host.world.history if entry.to_name == new.name] == ["done"]


@pytest.mark.parametrize("new", [NEW, KARGS], ids=["image", "kernel arguments"])
async def test_an_update_of_the_os(new: MachineConfig) -> None:
    total = await test_os_kills.undisturbed(new)
    for fuse in kill_points(total):
        host = await test_os_kills.at_old()
        host.want(new)
        await disturb(host, fuse)
        await host.settle()
        assert host.phase is Phase.IDLE, f"a soft reboot at call {fuse}: {host.record}"
        test_os_kills.assert_at(host, new, test_os_kills.OLD)
        assert host.actions().count("reboot") == 1, f"a soft reboot at call {fuse}: {host.actions()}"
        assert [entry.outcome for entry in host.world.history if entry.to_name == new.name] == ["done"]


async def test_a_revert_of_the_os() -> None:
    """The way back is a boot of the kernel, too."""

    async def bad() -> Host:
        host = await test_os_kills.at_old()
        test_os_kills.bad_on(host.world, test_os_kills.B_DIGEST)
        host.want(NEW)
        return host

    host = await bad()
    await host.settle()
    total, undisturbed = host.world.calls, host.actions().count("reboot")
    assert host.record.reason == "Reverted"
    for fuse in kill_points(total):
        host = await bad()
        await disturb(host, fuse)
        await host.settle()
        assert (host.phase, host.record.reason) == (Phase.DEGRADED, "Reverted"), f"at call {fuse}: {host.record}"
        test_os_kills.assert_at(host, test_os_kills.OLD, NEW)
        assert host.actions().count("reboot") in (undisturbed, undisturbed - 1)


async def test_a_fallback_reboot_needs_no_kernel() -> None:
    """The update only needs restarted services, so a soft reboot by another program is as good."""

    async def stuck() -> Host:
        host = await test_kills.at_old()
        host.world.units["app.service"].fail_restarts = 9
        host.want(test_kills.BUSY)
        return host

    host = await stuck()
    await go_to_reboot(host)
    host.world.soft_reboot()
    await host.settle()
    test_kills.assert_converged(host, test_kills.BUSY)
    assert host.actions().count("reboot") == 0
    assert [(entry.outcome, entry.reboots) for entry in host.world.history][-1:] == [("done-after-fallback", 1)]


@pytest.mark.finding("OS: soft reboots", "A deployment that a soft reboot finalized is booted, not staged again.")
async def test_what_a_soft_reboot_finalized_is_booted() -> None:
    """The deployment is unlocked, and another program soft-reboots before logind reboots."""
    host = await test_os_kills.at_old()
    host.want(NEW)
    await go_to_reboot(host)
    assert staged(host.world.deployments) is not None
    host.world.soft_reboot()
    first = host.world.deployments[0]
    assert (first.digest, first.staged) == (test_os_kills.B_DIGEST, False)
    await host.settle()
    assert host.phase is Phase.IDLE
    test_os_kills.assert_at(host, NEW, test_os_kills.OLD)
    assert host.world.history[-1].outcome == "done"
    assert host.world.deployments[0].id == first.id, "nothing was staged once more"


# -- a soft reboot into the locked deployment is prepared --------------------------------------------------------------


@pytest.mark.finding(
    "OS: soft reboots",
    "A locked deployment that is prepared for a soft reboot is reported at once, and cleared before a reboot of ours.",
)
async def test_it_is_cleared_before_a_reboot_of_ours() -> None:
    host = await test_os_kills.at_old()
    host.world.next_root = True
    host.want(NEW)
    await host.settle()
    assert host.phase is Phase.IDLE
    assert not host.world.next_root
    assert "LockedSoftReboot" in [event.reason for event in host.world.events if isinstance(event, Warned)]
    test_os_kills.assert_at(host, NEW, test_os_kills.OLD)


async def test_without_that_there_is_no_reboot() -> None:
    host = await test_os_kills.at_old()
    host.world.next_root = True
    locked = Refused("it cannot be cleared", reason=Reason.LOCKED_SOFT_REBOOT)
    host.world.faults.append(Fault("reset soft reboot", locked, times=None))
    host.want(NEW)
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "LockedSoftReboot")
    assert host.actions() == []
    found = staged(host.world.deployments)
    assert found is not None
    assert found.locked is True, "it is not unlocked either"


@pytest.mark.finding(
    "OS: soft reboots",
    "A locked deployment that is prepared for a soft reboot is reported at once, and cleared before a reboot of ours.",
)
async def test_it_is_reported_at_once_and_when_it_is_over() -> None:
    host = await test_os_kills.at_old()
    world, report = host.world, Report(Status())
    os = HostDeployments(FakeDeployments(world), report)
    made = await os.stage(
        target_between(test_os_kills.OLD, NEW), credentials=None, replace="", on_progress=lambda _: None
    )
    watch = SoftRebootWatch(os, report)
    running = asyncio.create_task(watch.run())
    watch.changed()
    await asyncio.sleep(1)
    assert report.status.problems == ()
    world.next_root = True
    watch.changed()
    await asyncio.sleep(1)
    (problem,) = report.status.problems
    assert (problem.reason, made.id in problem.message) == ("LockedSoftReboot", True)
    assert "LockedSoftReboot" in line(report.status)
    world.next_root = False
    watch.changed()
    await asyncio.sleep(1)
    assert report.status.problems == ()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
