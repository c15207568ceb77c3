# SPDX-License-Identifier: Apache-2.0
"""An update of the OS by a soft reboot: at most one, then at most one full reboot, then the revert.

The host in memory prepares as libostree does, and its fuse disturbs such an update at each call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from nodeagent.core.boot import RebootKind
from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.deployment import staged
from nodeagent.core.plan.policy import REBOOT, Entry, Policy
from nodeagent.errors import AgentError, NoSoftReboot, Refused, ServiceUnavailable, SoftObstacle
from nodeagent.features.soft_reboot.reasons import SoftRebootReason
from nodeagent.host.store.record_codec import record_to_dict
from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason
from nodeagent.update.history.lasting import REBOOTS, Budget, Lasting
from nodeagent.update.ports.events import FallbackChosen, PhaseEntered, Warned
from nodeagent.update.ports.system import ShutdownKind
from nodeagent.update.states import Phase
from tests.features.soft_reboot.soft import guard_of
from tests.update import test_os_kills
from tests.update.test_clear_state import STATE, by_key
from tests.update.test_os_kills import OLD, assert_at
from tests.update.test_soft_reboots import go_to_reboot
from tests.world import FakeUnit, Fault, Killed, World, kill_points
from tests.world.os_host import A_DIGEST, B_DIGEST, KARGS, UNIT, bad_on, booted_digest, on
from tests.world.run import POLICY, Host

pytestmark = pytest.mark.looptime

NEW = on("b", "new", {"/etc/app/x": "2", "/etc/app/y": "2"}, units=[UNIT])
SYSCTL = on("b", "sysctl", {"/etc/app/x": "2", "/etc/sysctl.d/x.conf": "1"})
MINE = on("b", "mine", {"/etc/app/x": "2", "/etc/mine": "1"})


class PickyHost(Host):
    """The policy of the admin asks for a reboot after a change of one file."""

    async def _policy(self, *_: MachineConfig) -> Policy:
        from nodeagent.core.plan.change import PolicySource

        entry = Entry("/etc/mine", (REBOOT,), PolicySource.USER)
        return replace(POLICY, files={**POLICY.files, entry.key: entry})


async def soft_host(new: MachineConfig = NEW, *, soft: bool = True) -> Host:
    host = await test_os_kills.at_old()
    host = PickyHost(host.world, host.limits, configs=host.configs, texts=host.texts, wanted=host.wanted)
    host.guards = [guard_of(host.world, "auto" if soft else "never")]
    host.want(new)
    return host


def reboots(host: Host) -> list[str]:
    return [action for action in host.actions() if action in ("reboot", "soft-reboot")]


def warned(host: Host) -> list[str]:
    return [event.reason for event in host.world.events if isinstance(event, Warned)]


def newest(host: Host) -> tuple[str, int, int, str]:
    entry = host.world.history[-1]
    return entry.outcome, entry.reboots, entry.soft_reboots, entry.message


def announced(host: Host) -> list[str]:
    return [
        event.message
        for event in host.world.events
        if isinstance(event, PhaseEntered) and event.about.phase is Phase.REBOOTING
    ]


def assert_new(host: Host, new: MachineConfig = NEW) -> None:
    assert host.phase is Phase.IDLE, host.record
    assert_at(host, new, OLD)
    assert host.world.prepared == ""


async def test_the_new_deployment_is_entered_without_a_kernel() -> None:
    host = await soft_host()
    host.world.kernel_start = 143.2
    await host.settle()
    assert_new(host)
    assert reboots(host) == ["soft-reboot"]
    assert (host.world.boot, host.world.soft) == (1, 1)
    outcome, count, soft, message = newest(host)
    assert (outcome, count, soft) == ("done", 1, 1)
    assert "143 s" in message
    assert "soft" in announced(host)[0]
    assert warned(host) == []


async def test_the_state_of_a_unit_is_removed_before_it() -> None:
    class ClearingHost(Host):
        async def _policy(self, *_: MachineConfig) -> Policy:
            return replace(POLICY, files={**POLICY.files, "/etc/app": Entry("/etc/app", rule=by_key)})

    soft = await soft_host()
    host = ClearingHost(soft.world, soft.limits, configs=soft.configs, texts=soft.texts, wanted=soft.wanted)
    host.guards = soft.guards
    host.world.disk[STATE] = RegularFile(b"old")
    await host.settle()
    assert_new(host)
    assert host.actions()[-2:] == ["stop app.service", "soft-reboot"]
    assert STATE not in host.world.disk


async def test_a_full_one_shows_what_a_soft_one_would_save() -> None:
    for host in (await soft_host(soft=False), await soft_host(SYSCTL)):
        host.world.kernel_start = 143.2
        await host.settle()
        outcome, count, soft, message = newest(host)
        assert (outcome, count, soft) == ("done", 1, 0)
        assert message.endswith(", of which firmware and kernel take about 143 s")


async def test_without_the_setting_it_is_a_full_one() -> None:
    host = await soft_host(soft=False)
    await host.settle()
    assert_new(host)
    assert reboots(host) == ["reboot"]
    assert newest(host) == ("done", 1, 0, "")
    assert announced(host) == ["rebooting into new"]


@pytest.mark.parametrize("new", [SYSCTL, MINE, KARGS], ids=["sysctl", "policy of the admin", "kernel arguments"])
async def test_what_the_plan_changes_may_need_a_kernel(new: MachineConfig) -> None:
    host = await soft_host(new)
    await host.settle()
    assert host.phase is Phase.IDLE, host.record
    assert reboots(host) == ["reboot"]
    assert newest(host)[:3] == ("done", 1, 0)
    assert "KernelStartNeeded" in newest(host)[3]
    assert "KernelStartNeeded" in announced(host)[0]


async def test_another_kernel_is_started() -> None:
    host = await soft_host()
    host.world.kernels[B_DIGEST] = "6.2"
    await host.settle()
    assert_new(host)
    assert reboots(host) == ["reboot"]
    assert newest(host)[:3] == ("done", 1, 0)
    assert "KernelStartNeeded: another kernel" in newest(host)[3]


async def test_a_reboot_for_files_alone_is_a_full_one() -> None:
    host = await soft_host(on("a", "files", {"/etc/unlisted": "1"}))
    await host.settle()
    assert host.phase is Phase.IDLE
    assert reboots(host) == ["reboot"]


OBSTACLES = (
    SoftRebootReason.SOFT_REBOOT_UNSUPPORTED,
    SoftRebootReason.NEXT_ROOT_PREPARED,
    SoftRebootReason.ENCRYPTED_ROOT,
    SoftRebootReason.KERNEL_START_NEEDED,
)


@pytest.mark.parametrize("at", ["no soft reboot", "soft reboot into"], ids=["host", "deployment"])
@pytest.mark.parametrize("reason", OBSTACLES)
@pytest.mark.parametrize("late", [False, True], ids=["at once", "before the request"])
async def test_an_obstacle_makes_it_a_full_one(reason: AnyReason, late: bool, at: str) -> None:
    host = await soft_host()
    obstacle = NoSoftReboot("not here", reason=reason)
    host.world.faults.append(Fault(at, obstacle, None, lambda: not late or bool(announced(host))))
    await host.settle()
    assert_new(host)
    assert reboots(host) == ["reboot"]
    assert newest(host)[:3] == ("done", 1, 0)
    assert f"{reason}: not here" in newest(host)[3]
    assert warned(host).count(reason) == int(late)


async def test_the_system_of_another_program_is_not_started() -> None:
    host = await soft_host()
    host.world.next_root_of_another = True
    await host.settle()
    assert_new(host)
    assert reboots(host) == ["reboot"]
    assert "NextRootPrepared" in newest(host)[3]


async def test_an_odd_error_of_the_check_is_a_no() -> None:
    host = await soft_host()
    odd = AgentError("a bus that is odd", reason=Reason.ACCESS_DENIED)
    host.world.faults.append(Fault("soft reboot into", odd, None, lambda: bool(announced(host))))
    await host.settle()
    assert_new(host)
    assert reboots(host) == ["reboot"]
    assert "SoftRebootUnsupported" in warned(host)


async def test_a_check_without_an_answer_is_waited_for() -> None:
    host = await soft_host()
    away = ServiceUnavailable("no answer", reason=Reason.BUS_TIMEOUT, service="rpm-ostreed")
    host.world.faults.append(Fault("soft reboot into", away, 2))
    await host.settle()
    assert_new(host)
    assert reboots(host) == ["soft-reboot"]


async def test_a_preparation_that_fails_is_followed_by_a_full_one() -> None:
    host = await soft_host()
    host.world.faults.append(Fault("prepare", NoSoftReboot("no erofs", SoftObstacle.NOT_PREPARED)))
    await host.settle()
    assert_new(host)
    assert reboots(host) == ["reboot"]
    assert warned(host) == ["SoftRebootNotPrepared"]
    assert "SoftRebootNotPrepared: no erofs" in newest(host)[3]


async def test_a_logind_that_does_not_know_it_makes_it_a_full_one() -> None:
    host = await soft_host()
    unknown = NoSoftReboot("logind knows no soft reboot", SoftObstacle.UNSUPPORTED)
    host.world.faults.append(Fault("soft reboot", unknown))
    await host.settle()
    assert_new(host)
    assert reboots(host) == ["reboot"]
    assert "SoftRebootUnsupported" in warned(host)


async def test_an_accepted_one_that_does_not_come_is_cleared_before_the_full_one() -> None:
    host = await soft_host()
    cleared: list[str] = []
    host.world.faults.append(Fault("ignored reboot"))
    host.world.faults.append(Fault("reset soft reboot", None, 1, lambda: cleared.append(host.world.prepared) is None))
    await host.settle()
    assert_new(host)
    assert reboots(host) == ["reboot"]
    assert warned(host) == ["SoftRebootFailed"]
    assert cleared[0].startswith("os-bbbb")


async def test_one_that_an_inhibitor_delays_while_the_agent_is_killed() -> None:
    """The agent that starts again neither clears what is prepared nor requests a full reboot."""
    host = await soft_host()
    await go_to_reboot(host)
    host.world.delayed = ShutdownKind.SOFT_REBOOT
    await host.settle()
    assert_new(host)
    assert reboots(host) == ["soft-reboot"]
    assert newest(host)[:3] == ("done", 1, 1)
    assert warned(host) == []


async def test_a_soft_reboot_that_starts_the_old_deployment_is_followed_by_a_full_one() -> None:
    """The new one was finalized, so the full reboot starts it."""
    host = await soft_host()
    host.world.faults.append(Fault("lost next root"))
    await host.settle()
    assert_new(host)
    assert reboots(host) == ["soft-reboot", "reboot"]
    assert newest(host)[:3] == ("done", 2, 1)
    assert "a full reboot followed" in newest(host)[3]
    assert [event.kind for event in host.world.events if isinstance(event, FallbackChosen)] == [RebootKind.FULL]
    assert len(host.world.credentials) == 1, "staged once"


async def test_a_deployment_that_was_not_finalized_is_left_by_a_full_reboot() -> None:
    """The new one runs unmerged, and nothing of ostree works: only a full reboot helps, which starts the old one."""
    host = await soft_host()
    host.world.faults.append(Fault("finalize in a soft reboot"))
    await host.settle()
    assert_new(host)
    assert reboots(host) == ["soft-reboot", "reboot", "reboot"]
    assert len(host.world.credentials) == 2, "it is staged again in the old one"
    assert newest(host)[:3] == ("done", 3, 1)


async def test_a_soft_reboot_that_loses_the_deployment_is_staged_again_for_a_full_one() -> None:
    host = await soft_host()
    await go_to_reboot(host)
    host.world.soft_reboot()
    host.world.deployments = [replace(d, booted=d.digest == A_DIGEST) for d in host.world.deployments]
    host.world._boot_into(next(d for d in host.world.deployments if d.digest == A_DIGEST))
    del host.world.deployments[0]
    await host.settle()
    assert_new(host)
    assert reboots(host) == ["reboot"]
    assert len(host.world.credentials) == 2


class UntilFull(FakeUnit):
    """Fails with the new OS until a kernel starts with it."""

    world: World

    @property
    def bad_until_boot(self) -> int:
        return 2 if booted_digest(self.world) == B_DIGEST else 0

    @bad_until_boot.setter
    def bad_until_boot(self, value: int) -> None: ...


async def test_a_host_that_is_not_well_gets_a_full_reboot() -> None:
    host = await soft_host()
    UntilFull.world = host.world
    host.world.units["app.service"] = UntilFull()
    await host.settle()
    assert_new(host)
    assert reboots(host) == ["soft-reboot", "reboot"]
    assert newest(host)[:3] == ("done", 2, 1)
    assert len(host.record.lasting.budget.spent) == 1


async def test_then_it_is_reverted() -> None:
    host = await soft_host()
    bad_on(host.world, B_DIGEST)
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "Reverted")
    assert_at(host, OLD, NEW)
    assert reboots(host)[:2] == ["soft-reboot", "reboot"]
    assert "soft-reboot" not in reboots(host)[1:], "the way back is full"


async def test_without_a_budget_it_is_reverted_at_once() -> None:
    host = await soft_host()
    lasting = Lasting(budget=Budget(spent=(0.0,) * REBOOTS))
    host.world.record = record_to_dict(replace(host.record, lasting=lasting))
    bad_on(host.world, B_DIGEST)
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "Reverted")
    assert_at(host, OLD, NEW)
    assert host.world.history[-1].reason == "RebootBudgetSpent"


async def test_a_setting_that_changes_on_the_way_counts() -> None:
    host = await soft_host()
    await go_to_reboot(host)
    host.guards = [guard_of(host.world, "fallback")]
    await host.settle()
    assert_new(host)
    assert reboots(host) == ["reboot"]


async def test_the_reboot_for_a_merge_of_etc_is_a_full_one() -> None:
    """The file is as the old image ships it, so the merge replaces it."""
    old, new = on("a", "old", {"/etc/chrony": "a"}), on("b", "new", {"/etc/chrony": "a"})
    host = await soft_host(old)
    await host.settle()
    host.world.done.clear()
    host.want(new)
    await host.settle()
    assert host.phase is Phase.IDLE, host.record
    assert reboots(host) == ["soft-reboot", "reboot"]


async def test_systemctl_reboot_of_another_program_is_that_reboot() -> None:
    """While the soft reboot is prepared, it is a soft one into the same deployment."""
    host = await soft_host()
    await go_to_reboot(host)
    assert host.world.prepared
    host.world.systemctl_reboot()
    await host.settle()
    assert_new(host)
    assert reboots(host) == []
    assert newest(host)[:3] == ("done", 1, 1)


async def test_a_full_reboot_of_another_program_counts_as_one() -> None:
    host = await soft_host()
    await go_to_reboot(host)
    host.world.shut_down()
    await host.settle()
    assert_new(host)
    assert reboots(host) == []
    assert newest(host)[:3] == ("done", 1, 0)


async def test_a_locked_one_that_another_program_prepared_is_cleared_first() -> None:
    host = await soft_host()
    host.world.next_root = True
    await host.settle()
    assert_new(host)
    assert "LockedSoftReboot" in warned(host)
    assert reboots(host) == ["soft-reboot"]


async def test_a_cancelled_update_leaves_nothing_prepared() -> None:
    host = await soft_host()
    host.world.faults.append(
        Fault("soft reboot", ServiceUnavailable("away", reason=Reason.BUS_TIMEOUT, service="x"), 1)
    )
    life = asyncio.create_task(host._live())
    while not host.world.prepared:
        await asyncio.sleep(0.1)
    host.want(OLD)
    await asyncio.gather(life, return_exceptions=True)
    await host.settle()
    assert_at(host, OLD, NEW)
    assert host.world.prepared == ""
    assert booted_digest(host.world) == A_DIGEST or "reboot" in reboots(host)


# -- at every point ----------------------------------------------------------------------------------------------------


def killed(world: World) -> None:
    """The agent alone is started again."""


DISTURBANCES: dict[str, Callable[[World], None]] = {
    "killed": killed,
    "power cut": World.power_cut,
    "soft reboot": World.soft_reboot,
    "systemctl reboot": World.systemctl_reboot,
}


def good(host: Host) -> None: ...


def in_vain(host: Host) -> None:
    host.world.faults.append(Fault("lost next root"))


def unfinalized(host: Host) -> None:
    host.world.faults.append(Fault("finalize in a soft reboot"))


def bad(host: Host) -> None:
    bad_on(host.world, B_DIGEST)


def not_prepared(host: Host) -> None:
    host.world.faults.append(Fault("prepare", NoSoftReboot("no", SoftObstacle.NOT_PREPARED)))


# While something is prepared, the reboot of another program is a soft one as well.
WAYS = [
    pytest.param(disturb, trouble, id=f"{name}, {trouble.__name__}")
    for name, disturb in DISTURBANCES.items()
    for trouble in (good, in_vain, not_prepared, unfinalized, bad)
    if trouble in (good, in_vain) or name in ("killed", "power cut") or (name != "soft reboot" and trouble is bad)
]


@pytest.mark.long
@pytest.mark.finding(
    "OS: soft reboots",
    "At most one planned soft reboot, then at most one full one, then the revert, whatever happens in between.",
)
@pytest.mark.parametrize(("disturb", "trouble"), WAYS)
async def test_at_every_point_of_the_way(disturb: Callable[[World], None], trouble: Callable[[Host], None]) -> None:
    """Whatever happens in between: at most one soft reboot of ours, then full ones only, and the right end."""
    host = await soft_host()
    trouble(host)
    host.world.calls = 0
    await host.settle()
    total = host.world.calls
    assert total > 20
    for fuse in kill_points(total, case=list(DISTURBANCES.values()).index(disturb)):
        host = await soft_host()
        trouble(host)
        host.world.calls, host.world.fuse = 0, fuse
        try:
            for _ in range(6):
                if await host._live():
                    break
        except Killed:
            disturb(host.world)
        host.world.fuse = -1
        await host.settle(lives=20)
        found = reboots(host)
        where = f"at call {fuse}: {found}, {host.record}"
        # A power cut right after a soft reboot hides what became of it, and the staged deployment is lost in any case.
        assert found.count("soft-reboot") <= (2 if trouble is unfinalized and disturb == World.power_cut else 1), where
        assert found == sorted(found, reverse=True), where
        assert found.count("reboot") <= (3 if trouble is bad else 2 if trouble is unfinalized else 1), where
        if trouble is bad:
            assert (host.phase, host.record.reason) == (Phase.DEGRADED, "Reverted"), where
            assert_at(host, OLD, NEW)
        else:
            assert host.phase is Phase.IDLE, where
            assert_at(host, NEW, OLD)
            assert [entry.outcome for entry in host.world.history if entry.to_name == "new"] == ["done"], where
        assert host.world.prepared == "", where


def start_locked(world: World) -> None:
    """Another program prepares the staged deployment and runs ``systemctl reboot``."""
    found = staged(world.deployments)
    world.next_root = found is not None and found.locked
    world.systemctl_reboot()


@pytest.mark.finding(
    "OS: soft reboots",
    "A locked deployment that another program started all the same is left by a full reboot, and the update continues"
    " in the old one.",
)
@pytest.mark.parametrize("soft", [True, False], ids=["soft", "full"])
async def test_another_program_starts_the_locked_one_at_every_point(soft: bool) -> None:
    """It runs without the files of the host, and no command of ostree works: a full reboot comes first."""
    host = await soft_host(soft=soft)
    host.world.calls = 0
    await host.settle()
    accidents = 0
    for fuse in kill_points(host.world.calls, case=int(soft)):
        host = await soft_host(soft=soft)
        host.world.calls, host.world.fuse = 0, fuse
        with suppress(Killed):
            for _ in range(6):
                if await host._live():
                    break
        before = len(reboots(host))
        start_locked(host.world)
        host.world.fuse = -1
        accident = host.world.unfinalized is not None
        await host.settle(lives=20)
        where = f"at call {fuse}: {reboots(host)}, {host.record}"
        if accident:
            accidents += 1
            assert reboots(host)[before] == "reboot", where
            assert warned(host).count("LockedSoftReboot") == 1, where
        assert host.phase is Phase.IDLE, where
        assert_at(host, NEW, OLD)
        assert [entry.outcome for entry in host.world.history if entry.to_name == "new"] == ["done"], where
    assert accidents > 3


async def test_without_the_right_to_reboot_the_locked_one_is_reported() -> None:
    host = await soft_host()
    host.world.fuse = 15
    with suppress(Killed):
        await host._live()
    host.world.fuse = -1
    start_locked(host.world)
    assert host.world.unfinalized is not None
    host.limits = replace(host.limits, may_reboot=False)
    with pytest.raises(Refused) as caught:
        await host.build().resume()
    assert caught.value.reason == Reason.LOCKED_SOFT_REBOOT
    assert reboots(host) == []
