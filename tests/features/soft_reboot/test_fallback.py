# SPDX-License-Identifier: Apache-2.0
"""A fallback by a soft reboot: at most one, then at most one full reboot, then the revert.

The fuse of the world kills the agent, cuts the power or starts the userspace again at each call of such an update.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from nodeagent.core.boot import RebootKind
from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.policy import Entry, Policy, restart
from nodeagent.errors import AgentError, NoSoftReboot, SoftObstacle
from nodeagent.features.soft_reboot.reasons import SoftRebootReason
from nodeagent.host.store.record_codec import record_to_dict
from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason
from nodeagent.update.history.lasting import REBOOTS, Budget, Lasting
from nodeagent.update.ports.events import FallbackChosen, Warned
from nodeagent.update.states import Phase
from tests.features.soft_reboot.soft import guard_of
from tests.update import test_kills
from tests.update.test_soft_reboots import go_to_reboot
from tests.world import FakeUnit, Fault, Killed, World, kill_points
from tests.world.run import LIMITS, POLICY, Host, config

pytestmark = pytest.mark.looptime

APP = config("app", {"/etc/web/x": "1", "/etc/app/x": "2", "/etc/quiet/gone": "1"})
# The policy of the admin restarts the service of the setting.
KERNEL = config("kernel", {"/etc/web/x": "1", "/etc/app/x": "2", "/etc/quiet/gone": "1", "/etc/sysctl.d/x.conf": "1"})


class SoftHost(Host):
    async def _policy(self, *_: MachineConfig) -> Policy:
        entry = Entry("/etc/sysctl.d", (restart("app.service"),))
        return replace(POLICY, files={**POLICY.files, entry.key: entry})


class Picky(FakeUnit):
    """Fails as long as it is given the new config."""

    world: World

    @property
    def bad_until_boot(self) -> int:
        return 99 if self.world.disk.get("/etc/app/x") == RegularFile(b"2") else 0

    @bad_until_boot.setter
    def bad_until_boot(self, value: int) -> None: ...


async def failing(*, bad_until_boot: int = 0, soft: bool = True, new: MachineConfig = APP) -> Host:
    """A host on which the restart fails. The unit starts at the next boot from ``bad_until_boot`` on; at 9, never."""
    host = await test_kills.at_old()
    host = SoftHost(host.world, configs=host.configs, texts=host.texts, wanted=host.wanted)
    host.limits = LIMITS
    host.guards = [guard_of(host.world, "fallback")] if soft else []
    if bad_until_boot == 9:
        Picky.world = host.world
        host.world.units["app.service"] = Picky()
    else:
        host.world.units["app.service"].fail_restarts = 9
        host.world.units["app.service"].bad_until_boot = bad_until_boot
    host.want(new)
    return host


def reboots(host: Host) -> list[str]:
    return [action for action in host.actions() if action in ("reboot", "soft-reboot")]


def newest(host: Host) -> tuple[str, int, int]:
    entry = host.world.history[-1]
    return entry.outcome, entry.reboots, entry.soft_reboots


def kinds(host: Host) -> list[RebootKind]:
    return [event.kind for event in host.world.events if isinstance(event, FallbackChosen)]


def warned(host: Host) -> list[str]:
    return [event.reason for event in host.world.events if isinstance(event, Warned)]


async def test_a_soft_reboot_that_cures() -> None:
    host = await failing()
    await host.settle()
    test_kills.assert_converged(host, APP)
    assert reboots(host) == ["soft-reboot"]
    assert newest(host) == ("done-after-fallback", 1, 1)
    assert kinds(host) == [RebootKind.SOFT]
    assert host.world.boot == 1


async def test_a_full_reboot_follows_a_soft_one_that_does_not_cure() -> None:
    host = await failing(bad_until_boot=2)
    await host.settle()
    test_kills.assert_converged(host, APP)
    assert reboots(host) == ["soft-reboot", "reboot"]
    assert newest(host) == ("done-after-fallback", 2, 1)
    assert kinds(host) == [RebootKind.SOFT, RebootKind.FULL]


async def test_after_both_the_update_is_reverted() -> None:
    host = await failing(bad_until_boot=9)
    await host.settle()
    assert reboots(host) == ["soft-reboot", "reboot"]
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "Reverted")
    assert newest(host)[1:] == (2, 1)


async def test_without_the_setting_the_fallback_is_full() -> None:
    host = await failing(soft=False)
    await host.settle()
    assert reboots(host) == ["reboot"]
    assert newest(host) == ("done-after-fallback", 1, 0)
    assert kinds(host) == [RebootKind.FULL]
    assert not {reason for reason in warned(host) if "oft" in reason}


async def test_what_a_kernel_reads_needs_a_full_one() -> None:
    host = await failing(new=KERNEL)
    await host.settle()
    assert reboots(host) == ["reboot"]
    assert newest(host) == ("done-after-fallback", 1, 0)
    assert "KernelStartNeeded" in warned(host)


async def test_a_soft_reboot_by_another_program_does_not_apply_it() -> None:
    host = await failing(new=KERNEL)
    await go_to_reboot(host)
    host.world.soft_reboot()
    await host.settle()
    test_kills.assert_converged(host, KERNEL)
    assert reboots(host) == ["reboot"]


OBSTACLES = (
    SoftRebootReason.SOFT_REBOOT_UNSUPPORTED,
    SoftRebootReason.NEXT_ROOT_PREPARED,
    SoftRebootReason.ENCRYPTED_ROOT,
)


@pytest.mark.parametrize("reason", OBSTACLES)
@pytest.mark.parametrize("late", [False, True], ids=["at once", "before the request"])
async def test_an_obstacle_makes_it_a_full_one(reason: AnyReason, late: bool) -> None:
    host = await failing()

    def due() -> bool:
        return not late or bool(kinds(host))

    host.world.faults.append(Fault("no soft reboot", NoSoftReboot("not here", reason=reason), None, due))
    await host.settle()
    test_kills.assert_converged(host, APP)
    assert reboots(host) == ["reboot"]
    messages = [event.message for event in host.world.events if isinstance(event, Warned) and event.reason == reason]
    assert messages == ["the fallback is a full reboot, not a soft one: not here"]
    # The entry of a fallback has its cause; a note is for a planned reboot.
    assert "a full reboot" not in host.world.history[-1].message
    assert newest(host) == ("done-after-fallback", 1, 0)


async def test_a_logind_that_does_not_know_it_makes_it_a_full_one() -> None:
    host = await failing()
    unknown = NoSoftReboot("logind knows no soft reboot", SoftObstacle.UNSUPPORTED)
    host.world.faults.append(Fault("soft reboot", unknown))
    await host.settle()
    assert reboots(host) == ["reboot"]
    assert "SoftRebootUnsupported" in warned(host)


async def test_the_system_of_another_program_is_not_started() -> None:
    host = await failing()
    host.world.next_root_of_another = True
    await host.settle()
    assert reboots(host) == ["reboot"]
    assert "NextRootPrepared" in warned(host)


async def test_an_accepted_one_that_does_not_come_is_followed_by_a_full_one() -> None:
    host = await failing()
    host.world.faults.append(Fault("ignored reboot"))
    await host.settle()
    test_kills.assert_converged(host, APP)
    assert reboots(host) == ["reboot"]
    assert "SoftRebootFailed" in warned(host)


async def test_a_setting_that_changes_on_the_way_counts() -> None:
    host = await failing()
    await go_to_reboot(host)
    host.guards = []
    await host.settle()
    assert reboots(host) == ["reboot"]


async def test_each_counts_for_the_budget() -> None:
    host = await failing(bad_until_boot=2)
    await host.settle()
    assert len(host.record.lasting.budget.spent) == 2


async def test_without_a_budget_a_soft_one_that_does_not_cure_is_reverted() -> None:
    """All but one were used before."""
    host = await failing(bad_until_boot=9)
    lasting = Lasting(budget=Budget(spent=(0.0,) * (REBOOTS - 1)))
    host.world.record = record_to_dict(replace(host.record, lasting=lasting))
    await host.settle()
    assert reboots(host) == ["soft-reboot"]
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "Reverted")
    assert host.world.history[-1].reason == "RebootBudgetSpent"


# -- at every point ----------------------------------------------------------------------------------------------------


def killed(world: World) -> None:
    """The agent alone is started again."""


DISTURBANCES: dict[str, Callable[[World], None]] = {
    "killed": killed,
    "power cut": World.power_cut,
    "soft reboot": World.soft_reboot,
}


@pytest.mark.long
@pytest.mark.finding(
    "OS: soft reboots",
    "At most one soft and one full reboot before a revert, whatever happens in between.",
)
@pytest.mark.parametrize("bad_until_boot", [0, 2, 9], ids=["a soft one cures", "a full one cures", "none cures"])
@pytest.mark.parametrize("disturb", list(DISTURBANCES.values()), ids=list(DISTURBANCES))
async def test_at_every_point_of_the_way(disturb: Callable[[World], None], bad_until_boot: int) -> None:
    """Whatever happens in between, there is at most one soft reboot of ours and one full one, and a good end."""
    host = await failing(bad_until_boot=bad_until_boot)
    host.world.calls = 0
    await host.settle()
    total = host.world.calls
    assert total > 10
    for fuse in kill_points(total, case=list(DISTURBANCES.values()).index(disturb)):
        host = await failing(bad_until_boot=bad_until_boot)
        host.world.calls, host.world.fuse = 0, fuse
        try:
            for _ in range(6):
                if await host._live():
                    break
        except Killed:
            disturb(host.world)
        host.world.fuse = -1
        await host.settle()
        found = reboots(host)
        assert found.count("soft-reboot") <= 1, f"at call {fuse}: {found}"
        assert found.count("reboot") <= 1, f"at call {fuse}: {found}"
        assert found == sorted(found, reverse=True), f"at call {fuse}: {found}"
        if bad_until_boot == 9:
            assert (host.phase, host.record.reason) == (Phase.DEGRADED, "Reverted"), f"at call {fuse}: {host.record}"
        # A soft reboot before the update leaves a unit that has failed already, which is no failure of the update.
        elif bad_until_boot == 0 or disturb != World.soft_reboot:
            test_kills.assert_converged(host, APP)


@pytest.mark.parametrize("late", [False, True], ids=["at once", "before the request"])
async def test_an_error_of_the_check_is_no_reason_to_stop(late: bool) -> None:
    host = await failing()
    odd = AgentError("a bus that is odd", reason=Reason.ACCESS_DENIED)
    host.world.faults.append(Fault("no soft reboot", odd, 1, lambda: not late or bool(kinds(host))))
    await host.settle()
    test_kills.assert_converged(host, APP)
    assert reboots(host) == ["reboot"]
