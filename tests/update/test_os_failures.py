# SPDX-License-Identifier: Apache-2.0
"""Failures before the new deployment runs: staging, finalization, and the power."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from nodeagent.agent.loop import Loop
from nodeagent.core.config.file_tree import RegularFile, expand
from nodeagent.core.plan.deployment import staged
from nodeagent.errors import Refused, Retryable, Terminal
from nodeagent.reasons import Reason
from nodeagent.report.status import Status
from nodeagent.report.status_fold import fold
from nodeagent.update.machine import RunResult
from nodeagent.update.ports.events import StagingAdvanced, UpdateWaiting, Warned
from nodeagent.update.ports.system import Inhibitor
from nodeagent.update.record import Record
from nodeagent.update.run import Update
from nodeagent.update.stages.after_boot import IMMEDIATE_RESTAGINGS, MAX_LOST_STAGINGS, MAX_RESTAGINGS, PAUSE
from nodeagent.update.states import Phase
from tests.world import FakeLease, FakeStore, Fault, Killed, full_disk
from tests.world.deployments import FakeDeployments
from tests.world.os_host import (
    B_DIGEST,
    FIRST,
    MORE,
    NEW,
    OLD,
    at_old,
    booted_digest,
    managed,
    on,
)
from tests.world.run import Host, kinds, phases

pytestmark = pytest.mark.looptime


async def test_staging_is_retried_after_network_failure() -> None:
    host = await at_old()
    host.world.faults.append(Fault("stage", Retryable("no route", reason=Reason.REGISTRY_UNREACHABLE), times=3))
    host.want(NEW)
    began = asyncio.get_running_loop().time()
    await host.settle()
    assert asyncio.get_running_loop().time() - began >= 30 + 60 + 120
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)
    assert kinds(host, UpdateWaiting) == ["RegistryUnreachable"] * 3


async def test_why_a_staging_is_tried_again_is_shown_until_it_goes_on() -> None:
    host = await at_old()
    host.world.stage_seconds = 40
    # The second attempt comes as far as to begin, and not to where the first one ended.
    faults = {5: Reason.REGISTRY_UNREACHABLE, 0: Reason.NO_SPACE, 1: Reason.STAGE_FAILED}
    first, second, third = (
        Fault(f"layer {layer}", Retryable(f"fault at {layer}", reason=reason)) for layer, reason in faults.items()
    )
    second.when = lambda: first not in host.world.faults
    third.when = lambda: second not in host.world.faults
    host.world.faults += [first, second, third]
    host.want(NEW)
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)
    assert kinds(host, Warned) == []
    waits = [event.message for event in host.world.events if isinstance(event, UpdateWaiting)]
    shapes = [re.sub(r"\d+ s", "N s", message) for message in waits]
    assert shapes == [f"trying again in N s: fault at {layer}" for layer in faults]

    status, shown = Status(), list[tuple[int, str, str]]()
    for event in host.world.events:
        status = fold(status, event)
        if isinstance(event, StagingAdvanced | UpdateWaiting):
            assert status.phase is Phase.STAGING
            layer = status.step.index if status.step is not None else -1
            shown.append((layer, status.reason, status.message.rpartition(": ")[2]))
    lines = [line for line, _ in itertools.groupby(shown)]
    first_wait = lines.index((-1, "RegistryUnreachable", "fault at 5"))
    assert {reason for _, reason, _ in lines[:first_wait]} == {""}
    assert lines[first_wait : first_wait + 6] == [
        (-1, "RegistryUnreachable", "fault at 5"),
        # It has begun, and done nothing.
        (0, "RegistryUnreachable", "fault at 5"),
        (-1, "NoSpace", "fault at 0"),
        (0, "NoSpace", "fault at 0"),
        # It goes on, and fails again.
        (1, "", ""),
        (-1, "StageFailed", "fault at 1"),
    ]
    assert lines[first_wait + 6] == (0, "StageFailed", "fault at 1")
    assert {(reason, message) for _, reason, message in lines[first_wait + 7 :]} == {("", "")}


@pytest.mark.parametrize(
    "errors",
    [
        [Terminal("manifest unknown", reason=Reason.IMAGE_NOT_FOUND)],
        [Refused("dnf", reason=Reason.OTHER_DRIVER)],
        [Retryable("no route", reason=Reason.REGISTRY_UNREACHABLE) for _ in range(5)],
    ],
    ids=["terminal", "busy", "network"],
)
async def test_failed_staging_is_retried_later(errors: list[Terminal]) -> None:
    host = await at_old()
    reason = errors[0].reason
    host.world.faults += [Fault("stage", error) for error in errors]
    host.want(NEW)
    loop = host.build()
    host.world.rebooting = asyncio.Event()
    delay = await loop.turn()
    assert delay is not None
    assert 30 <= delay <= 36
    assert (host.phase, host.record.reason, host.record.lasting.failed_digest) == (Phase.DEGRADED, reason, "")
    assert host.record.update_id == "", "not half-way"
    assert (host.world.holder, host.actions()) == (None, [])
    assert managed(host.world, OLD, NEW) == expand(OLD)
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)


@pytest.mark.parametrize(
    ("disturb", "at_once"),
    [
        (lambda host, loop: loop.look_again(), False),
        (lambda host, loop: host.requested(loop), True),
        (lambda host, loop: host.want(MORE), True),
    ],
    ids=["the watch reports the same file", "an operator requests it", "something else is desired"],
)
async def test_postponed_update_waits_unless_config_changes(
    disturb: Callable[[Host, Loop], None], at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = await at_old()
    host.world.faults.append(Fault("stage", Terminal("manifest unknown", reason=Reason.IMAGE_NOT_FOUND)))
    host.want(NEW)
    loop = host.build()
    run, turn, ended = loop.executor.run, loop.turn, list[float]()

    async def disturbed(update: Update) -> RunResult:
        outcome = await run(update)
        disturb(host, loop)
        return outcome

    async def once() -> float | None:
        if ended:
            raise Stop
        delay = await turn()
        ended.append(asyncio.get_running_loop().time())
        return delay

    monkeypatch.setattr(loop.executor, "run", disturbed)
    monkeypatch.setattr(loop, "turn", once)
    with pytest.raises(Stop):
        await loop.run()
    assert (asyncio.get_running_loop().time() - ended[0] < 30) == at_once


class Stop(BaseException):
    """The loop looked a second time."""


async def test_postponed_update_does_not_revive_failed_config() -> None:
    host = await at_old()
    host.world.faults.append(full_disk())
    host.want(MORE)
    await host.settle()
    assert host.record.reason == "Reverted"
    host.world.repair("install")
    host.world.faults.append(Fault("stage", Terminal("manifest unknown", reason=Reason.IMAGE_NOT_FOUND)))
    host.want(on("c", "newest"))
    assert await host.build().turn() is not None
    assert host.record.reason == "ImageNotFound"
    host.want(MORE)
    await host.settle()
    assert (host.phase, host.actions()) == (Phase.DEGRADED, [])


async def test_endless_staging_is_aborted() -> None:
    host = await at_old()
    host.world.stage_seconds = 100 * 3600
    host.want(NEW)
    loop = host.build()
    host.world.rebooting = asyncio.Event()
    assert await loop.turn() is not None
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "PhaseLate")


async def test_failed_finalization_is_reported_and_not_retried() -> None:
    host = await at_old()
    host.world.faults.append(Fault("finalize", OSError("error: No space left on device")))
    host.want(NEW)
    await host.settle()
    ended = host.world.history[-1]
    assert (host.phase, host.record.reason, ended.reason) == (
        Phase.DEGRADED,
        "Reverted",
        "FinalizeFailed",
    )
    assert "No space left on device" in host.record.message
    assert host.actions() == ["reboot", "reboot"]
    assert managed(host.world, OLD, NEW) == expand(OLD)
    assert host.world.units["app.service"].read["/etc/app/x"] == RegularFile(b"1")
    await host.settle()
    assert host.actions() == ["reboot", "reboot"]


async def test_boot_menu_choice_causes_no_loop() -> None:
    host = await at_old()
    host.world.boot_menu[2] = FIRST.id
    host.want(NEW)
    await host.settle()
    assert (host.phase, host.world.history[-1].reason) == (Phase.DEGRADED, "OldDeploymentBooted")
    assert host.actions().count("reboot") == 2
    assert managed(host.world, OLD, NEW) == expand(OLD)
    assert [d.id for d in host.world.deployments] == [FIRST.id], "it would boot next time"


@pytest.mark.finding("leases: lost while users are warned", "The staged deployment stays locked until then.")
async def test_lease_lost_during_warning_keeps_deployment_locked() -> None:
    host = await at_old()
    host.world.logged_in = True
    host.limits = replace(host.limits, warn_users=3600)
    host.want(NEW)
    task = asyncio.create_task(host.settle())
    while not host.world.warned:
        await asyncio.sleep(1)
    host.world.holder = None
    await task
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "LeaseLost")
    assert [d.locked for d in host.world.deployments if d.staged] == [True], "another reboot must not boot it"


async def test_lost_staging_is_repeated_a_limited_number_of_times() -> None:
    host = await at_old()
    host.world.faults.append(Fault("finalize", times=99))
    host.want(NEW)
    await host.settle()
    assert (host.phase, host.world.history[-1].reason) == (Phase.DEGRADED, "StagedLost")
    assert len(host.world.credentials) == 3
    assert host.actions().count("reboot") == 4, "three times there, once because files were restored"
    assert managed(host.world, OLD, NEW) == expand(OLD)


@pytest.mark.parametrize("cuts", [3, MAX_RESTAGINGS])
async def test_update_survives_power_cuts_at_each_reboot(cuts: int) -> None:
    host = await at_old()
    host.world.faults.append(Fault("power cut", times=cuts))
    host.want(NEW)
    began = asyncio.get_running_loop().time()
    await host.settle()
    assert (host.phase, booted_digest(host.world), host.record.reason) == (Phase.IDLE, B_DIGEST, "")
    assert len(host.world.credentials) == cuts + 1
    assert host.actions() == ["reboot"], "each cut was one too many already"
    waited = asyncio.get_running_loop().time() - began
    assert waited >= sum(PAUSE * 2**number for number in range(cuts - IMMEDIATE_RESTAGINGS))
    assert set(host.world.staged_with_lease) == {"nodeagent"}


async def test_power_cut_at_each_reboot_causes_no_loop() -> None:
    host = await at_old()
    host.world.faults.append(Fault("power cut", times=99))
    host.want(NEW)
    with pytest.MonkeyPatch.context() as patch:
        # The way back has to boot as well.
        patch.setattr(FakeStore, "save", power_stays_for_the_way_back(host))
        await host.settle(lives=20)
    ended = host.world.history[-1]
    assert (host.phase, host.record.reason, ended.reason) == (Phase.DEGRADED, "Reverted", "StagedLost")
    assert len(host.world.credentials) == MAX_RESTAGINGS + 1
    assert managed(host.world, OLD, NEW) == expand(OLD)
    assert staged(host.world.deployments) is None


def power_stays_for_the_way_back(host: Host) -> Callable[[FakeStore, Record], Awaitable[None]]:
    save = FakeStore.save

    async def saving(self: FakeStore, record: Record) -> None:
        if record.reverting:
            host.world.repair("power cut")
        await save(self, record)

    return saving


async def test_power_cut_during_wait_is_not_counted() -> None:
    host = await at_old()
    host.world.faults.append(Fault("power cut", times=IMMEDIATE_RESTAGINGS + 1))
    host.want(NEW)
    stagings = IMMEDIATE_RESTAGINGS + 1
    while len(host.world.credentials) < stagings or host.phase is not Phase.STAGING:
        with contextlib.suppress(Killed):
            await live_for(host, PAUSE / 2)
    for _ in range(3 * MAX_RESTAGINGS):
        await live_for(host, PAUSE / 2)
        assert host.phase is Phase.STAGING
        host.world.power_cut()
    assert len(host.world.credentials) == stagings
    assert any("this boot lasts" in event.message for event in host.world.events if isinstance(event, UpdateWaiting))
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)
    assert len(host.world.credentials) == stagings + 1


async def live_for(host: Host, seconds: float) -> None:
    """One life of the daemon that ends after so long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await host._live()


async def test_foreign_reboots_during_update() -> None:
    """Reboots by another program lose the locked deployment. These losses are expected and not counted."""
    host = await at_old()
    host.want(NEW)
    host.world.blockers = [Inhibitor("backup", "sleep", "nightly")]
    for number in range(MAX_LOST_STAGINGS + 2):
        while len(host.world.credentials) <= number or host.phase is not Phase.REBOOTING:
            await live_for(host, 100)
        host.world.shut_down()
    assert host.actions() == []
    host.world.blockers = []
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)
    assert host.actions() == ["reboot"]


async def test_lost_staging_is_repeated_with_the_lease() -> None:
    host = await at_old()
    host.world.faults.append(Fault("finalize", times=1))
    host.want(NEW)
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)
    assert host.actions() == ["reboot", "reboot"]
    assert set(host.world.staged_with_lease) == {"nodeagent"}
    assert phases(host).count("Writing") == 1


async def test_nothing_is_staged_again_without_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    host = await at_old()
    check = FakeLease.check

    async def lost(self: FakeLease, operation: str, *, need: float = 0.0, offline: bool = False) -> None:
        if self.world.boot > 1:
            raise Refused("the lease is not ours any more", reason=Reason.LEASE_LOST)
        await check(self, operation)

    monkeypatch.setattr(FakeLease, "check", lost)
    host.world.faults.append(Fault("finalize", times=1))
    host.want(NEW)
    await host.settle()
    assert len(host.world.credentials) == 1
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "LeaseLost")
    assert host.world.boot == 2, "the new holder gets the host as it is: no revert either"


async def test_staged_deployment_removed_manually_before_reboot() -> None:
    host = await at_old()
    save = FakeStore.save
    removed: list[str] = []

    async def cleanup(self: FakeStore, record: object) -> None:
        await save(self, record)  # type: ignore[arg-type]
        if host.phase is Phase.ACTING and len(removed) < 1:
            removed.append("rpm-ostree cleanup -p")
            host.world.drop_staged()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeStore, "save", cleanup)
        host.want(NEW)
        await host.settle()
    assert removed
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)
    assert host.actions() == ["reboot"]


async def test_failure_before_reboot_leaves_nothing_staged() -> None:
    host = await at_old()
    host.world.faults.append(full_disk())
    host.want(MORE)
    await host.settle()
    assert (host.phase, host.world.history[-1].reason, host.actions()) == (Phase.DEGRADED, "NoSpace", [])
    assert staged(host.world.deployments) is None
    assert managed(host.world, OLD, MORE) == expand(OLD)


async def test_systemd_stops_the_agent_before_logind_answers() -> None:
    """The shutdown was in order, so stagings that are lost are counted, and the trail knows when it began."""
    host = await at_old()
    host.world.faults.append(Fault("no answer to the reboot", times=None))
    host.world.faults.append(Fault("finalize", times=1))
    host.want(NEW)
    await host._live()
    assert (host.record.phase, host.record.os.clean_shutdown_boot_id) == (
        Phase.REBOOTING,
        host.record.os.staged_boot_id,
    )
    assert host.record.trail.boots[-1].accepted is not None
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)
    assert host.actions() == ["reboot", "reboot"]


async def test_agent_stopped_while_the_reboot_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """logind was not called yet, so no shutdown began: a power cut after that is no end in order."""
    host = await at_old()

    async def stopped(self: FakeDeployments, _deployment: str) -> None:
        assert self.world.rebooting is not None
        self.world.rebooting.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(FakeDeployments, "unlock", stopped)
        host.want(NEW)
        await host._live()
    assert (host.record.phase, host.record.os.clean_shutdown_boot_id) == (Phase.REBOOTING, "")
    assert host.record.trail.boots[-1].accepted is None
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)
    assert host.actions() == ["reboot"]
