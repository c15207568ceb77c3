# SPDX-License-Identifier: Apache-2.0
"""The bootloader around an update of the OS: a kernel that it refuses is never booted, and no try is endless.

The host in memory fails a test that boots a kernel which its bootloader refuses.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import looptime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.core.plan.deployment import staged
from nodeagent.errors import ServiceUnavailable
from nodeagent.features.bootloader.decide.check import BootloaderUpdate
from nodeagent.features.bootloader.guard import MAX_TRIES
from nodeagent.features.bootloader.reasons import BootloaderReason
from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.events import Event, PhaseEntered, StagingAdvanced, Warned
from nodeagent.update.states import Phase
from tests.features.bootloader.bootupd import broken, guard_of, host_with
from tests.update.test_staged_plan import planned, untouched
from tests.world import FakeReporter, Fault, Killed
from tests.world.os_host import A_DIGEST, B_DIGEST, FILES, NEW, OLD, at_old, booted_digest, on
from tests.world.run import Host, kinds

pytestmark = pytest.mark.looptime

REPORT, BEFORE, AFTER = BootloaderUpdate.REPORT, BootloaderUpdate.BEFORE_REBOOT, BootloaderUpdate.AFTER_BOOT
# Effects before and after the one with which an update of the bootloader begins.
AROUND = 6
OLDER = "the installed bootloader is older than that of the new OS (bootloader shim-1 installed, shim-2 in the new OS)"


def outcome(host: Host) -> tuple[str, str]:
    entry = host.world.history[-1]
    return entry.outcome, entry.reason


def assert_refused(host: Host, reason: AnyReason) -> None:
    world = host.world
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, reason)
    assert outcome(host) == ("refused", reason)
    assert booted_digest(world) == A_DIGEST
    assert host.actions() == [], "nothing was disrupted"
    assert world.holder is None
    found = staged(world.deployments)
    assert found is None or found.locked, "no reboot boots it"


@pytest.mark.parametrize("update", [REPORT, AFTER])
async def test_a_refused_kernel_ends_the_update_before_anything_is_disrupted(update: BootloaderUpdate) -> None:
    host = await host_with(update, needs=2)
    host.want(NEW)
    await host.settle()
    assert_refused(host, BootloaderReason.BOOTLOADER_TOO_OLD)
    asked, entries = host.world.calls, len(host.world.history)
    for _ in range(3):
        await host.settle()
    assert (host.world.calls, len(host.world.history)) == (asked, entries), "it is not tried again"
    host.world.power_cut()
    await host.settle()
    assert_refused(host, BootloaderReason.BOOTLOADER_TOO_OLD)
    # The operator updates the bootloader, and requests the config again.
    host.world.bootloader = 2
    await host.ask()
    assert (host.phase, booted_digest(host.world), outcome(host)) == (Phase.IDLE, B_DIGEST, ("done", ""))


async def test_never_neither_checks_nor_refuses() -> None:
    host = await host_with(BootloaderUpdate.NEVER)
    host.want(NEW)
    await host.settle()
    assert outcome(host) == ("done", "")
    assert (host.world.bootloader, host.world.history[-1].message) == (1, "")


async def test_an_older_one_is_reported_once() -> None:
    host = await host_with(REPORT)
    host.want(NEW)
    await host.settle()
    assert outcome(host) == ("done", "")
    assert host.world.history[-1].message == OLDER
    assert kinds(host, Warned) == [BootloaderReason.BOOTLOADER_OLDER]
    assert host.world.bootloader == 1


@pytest.mark.parametrize("needs", [0, 2])
async def test_it_is_updated_under_the_lease_before_the_reboot(needs: int) -> None:
    host = await host_with(BEFORE, needs=needs)
    host.want(NEW)
    await host.settle()
    assert outcome(host) == ("done", "")
    assert host.world.bootloader_updates == [(2, "nodeagent", False)]
    assert host.world.history[-1].message == "the bootloader was updated from shim-1 to shim-2"
    entered = [event.message for event in host.world.events if isinstance(event, PhaseEntered)]
    assert entered.count("updating the bootloader from shim-1 to shim-2") == 1
    assert booted_digest(host.world) == B_DIGEST


async def test_it_is_updated_after_the_new_os_is_verified() -> None:
    host = await host_with(AFTER)
    host.want(NEW)
    await host.settle()
    assert outcome(host) == ("done", "")
    assert host.world.bootloader_updates == [(2, "nodeagent", True)]
    assert host.world.history[-1].message == "the bootloader was updated from shim-1 to shim-2"


@pytest.mark.parametrize("fault", [Fault("update bootloader", broken()), Fault("update bootloader")], ids=["e", "none"])
async def test_a_failed_update_refuses_only_what_would_not_start(fault: Fault) -> None:
    why = "synthetic failpoint" if fault.error else "the installed bootloader is shim-1"
    for needs in (0, 2):
        host = await host_with(BEFORE, needs=needs)
        host.world.faults.append(replace(fault, times=None))
        host.want(NEW)
        await host.settle()
        if needs:
            assert_refused(host, BootloaderReason.BOOTLOADER_UPDATE_FAILED)
        else:
            assert outcome(host) == ("done", "")
            assert kinds(host, Warned) == [BootloaderReason.BOOTLOADER_UPDATE_FAILED]
        assert why in host.world.history[-1].message


async def test_a_failed_update_after_the_boot_is_no_reason_to_revert() -> None:
    host = await host_with(AFTER)
    host.world.faults.append(Fault("update bootloader", broken(), times=None))
    host.want(NEW)
    await host.settle()
    assert outcome(host) == ("done", "")
    assert "synthetic failpoint" in host.world.history[-1].message


async def test_one_that_does_not_help_is_not_installed() -> None:
    host = await host_with(BEFORE, brings=2, needs=3)
    host.want(NEW)
    await host.settle()
    assert_refused(host, BootloaderReason.BOOTLOADER_TOO_OLD)
    assert host.world.bootloader_updates == []


async def test_one_that_the_firmware_refuses_is_not_installed() -> None:
    host = await host_with(BEFORE)
    host.world.unfit = "the firmware has no certificate for the signature of its shim"
    host.want(NEW)
    await host.settle()
    assert (outcome(host), host.world.bootloader_updates) == (("done", ""), [])
    assert kinds(host, Warned) == [BootloaderReason.BOOTLOADER_UNFIT]


async def test_an_unknown_one_is_reported() -> None:
    host = await host_with(BEFORE)
    host.world.bootloader_unknown = "bootupctl status: nonsense"
    host.want(NEW)
    await host.settle()
    assert (outcome(host), host.world.bootloader_updates) == (("done", ""), [])
    assert kinds(host, Warned) == [BootloaderReason.BOOTLOADER_UNKNOWN]


async def test_without_systemd_the_update_waits() -> None:
    host = await host_with(REPORT, needs=2)
    host.world.faults.append(Fault("check bootloader", ServiceUnavailable("systemd", reason=Reason.BUS_TIMEOUT), 3))
    host.want(NEW)
    await host.settle()
    assert_refused(host, BootloaderReason.BOOTLOADER_TOO_OLD)


async def test_an_older_one_of_the_previous_os_is_left_alone() -> None:
    host = await host_with(BEFORE, brings=1)
    host.world.bootloader = 5
    host.want(NEW)
    await host.settle()
    assert (outcome(host), host.world.bootloader, host.world.history[-1].message) == (("done", ""), 5, "")


@pytest.mark.long
@pytest.mark.parametrize(
    ("update", "power"), [(BEFORE, False), (BEFORE, True), (AFTER, False)], ids=["before", "before, power", "after"]
)
async def test_killed_at_every_point_around_the_update(update: BootloaderUpdate, power: bool) -> None:
    """All other points are those of any update of the OS, and the property below takes some of them."""
    needs = 2 if update is BEFORE else 0
    whole = await host_with(update, needs=needs)
    whole.want(NEW)
    whole.world.calls = 0
    await whole.settle()
    assert outcome(whole) == ("done", "")
    at = whole.world.bootloader_call
    assert at > AROUND
    for fuse in range(at - AROUND, at + AROUND):
        host = await host_with(update, needs=needs)
        host.want(NEW)
        host.world.calls = 0
        host.world.fuse = fuse
        try:
            for _ in range(6):
                if await host._live():
                    break
        except Killed:
            if power:
                host.world.power_cut()
        host.world.fuse = -1
        await host.settle()
        assert [entry.outcome for entry in host.world.history if entry.to_name == NEW.name] == ["done"], f"fuse {fuse}"
        assert len(host.world.bootloader_updates) == 1, f"fuse {fuse}"
        assert host.world.holder is None


async def test_an_update_that_kills_the_agent_each_time_ends() -> None:
    host = await host_with(BEFORE)
    fault = Fault("update bootloader", Killed(), times=10)
    host.world.faults.append(fault)
    host.want(NEW)
    await host.settle()
    assert fault.times == 10 - MAX_TRIES
    assert outcome(host) == ("done", "")
    assert f"begun {MAX_TRIES} times" in host.world.history[-1].message


@given(
    installed=st.integers(1, 4),
    brings=st.integers(1, 4),
    needs=st.integers(0, 4),
    update=st.sampled_from([REPORT, BEFORE, AFTER]),
    fails=st.booleans(),
    fuse=st.integers(0, 60),
)
@settings(max_examples=25, deadline=None)
def test_no_host_is_left_at_the_prompt(
    installed: int, brings: int, needs: int, update: BootloaderUpdate, fails: bool, fuse: int
) -> None:
    async def story() -> None:
        host = await host_with(update, brings=brings, needs=needs)
        host.world.bootloader = installed
        if fails:
            host.world.faults.append(Fault("update bootloader", broken(), times=None))
        host.want(NEW)
        await host.kill_at(fuse or -1, power=bool(fuse % 2))
        host.world.fuse = -1
        await host.settle()
        world = host.world
        assert world.bootloader >= installed
        possible = installed >= needs or (update is BEFORE and not fails and brings >= needs)
        assert outcome(host)[0] == ("done" if possible else "refused")
        assert booted_digest(world) == (B_DIGEST if possible else A_DIGEST)

    loop = looptime.new_event_loop()
    try:
        loop.run_until_complete(story())
    finally:
        loop.close()


async def test_a_refusal_does_not_stop_a_config_with_another_os() -> None:
    host = await host_with(REPORT, needs=2)
    host.want(NEW)
    await host.settle()
    host.want(on("a", "other", {**FILES, "/etc/quiet/q": "2"}))
    await host.settle()
    assert (host.phase, outcome(host)) == (Phase.IDLE, ("done", ""))
    assert staged(host.world.deployments) is None
    assert OLD.os_image_url.endswith(booted_digest(host.world))


@pytest.mark.finding(
    "decisions: kernels that are refused",
    "A kernel that the bootloader refuses is refused before the host waits for its lease.",
)
async def test_a_refused_kernel_does_not_wait_for_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    host = await host_with(BootloaderUpdate.REPORT, needs=2)
    emit = FakeReporter.emit

    def and_take_the_lease(self: FakeReporter, event: Event) -> None:
        emit(self, event)
        if isinstance(event, StagingAdvanced):
            host.world.holder = Holder("node-maintenance", "nm-1", "new disks", "12:00")

    monkeypatch.setattr(FakeReporter, "emit", and_take_the_lease)
    host.want(NEW)
    async with asyncio.timeout(3600):
        await host.settle()
    assert host.world.holder is not None
    host.world.holder = None
    assert_refused(host, BootloaderReason.BOOTLOADER_TOO_OLD)


@pytest.mark.parametrize(
    ("update", "needs", "then"), [("report", 0, "warn"), ("report", 2, "refuse"), ("before-reboot", 2, "update")]
)
async def test_the_plan_compares_the_bootloader(update: str, needs: int, then: str) -> None:
    host = await at_old()
    host.world.bootloader, host.world.bootloaders[B_DIGEST], host.world.needs[B_DIGEST] = 1, 2, needs
    host.guards = [guard_of(host, BootloaderUpdate(update))]
    found = (await planned(host, NEW))["bootloader"]
    kernel = "refused" if needs else "accepted"
    assert (found["state"], found["kernel"], found["kernel_after_update"]) == ("older", kernel, "accepted")
    assert (found["then"], host.world.bootloader) == (then, 1)
    untouched(host)
