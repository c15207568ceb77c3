# SPDX-License-Identifier: Apache-2.0
"""`nodeagent cancel`: in each phase of an update, against the reboot, killed at each moment, and by another config."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace

import pytest

from nodeagent.core.config.file_tree import RegularFile
from nodeagent.errors import AgentError, InvalidInput, Refused, Terminal
from nodeagent.reasons import Reason
from nodeagent.report.status import Status
from nodeagent.report.status_fold import fold
from nodeagent.update.machine import WORK, Work
from nodeagent.update.ports.events import UpdateCancelled, Warned
from nodeagent.update.ports.store import ApplyRequest
from nodeagent.update.ports.system import Inhibitor
from nodeagent.update.run import Run
from nodeagent.update.states import Apply, Leg, Phase, Prepare, Transition
from tests.agent.test_api import DESIRED, api
from tests.update.test_outcomes import JANE, C, leasing, outcomes, status
from tests.update.test_update import A, B, started
from tests.world import Fault, Killed
from tests.world.os_host import NEW, at_old, booted_digest
from tests.world.run import Host, config

pytestmark = pytest.mark.looptime

REBOOTS = config("b", {"/etc/app/x": "1", "/etc/quiet/q": "1", "/etc/unlisted": "1"})
BACKUP = Inhibitor("backup", "runs", "backup[7]")


async def cancel(host: Host) -> dict[str, str]:
    """Call the daemon that runs on the host. As it would, the file then names the current config."""
    assert host.loop is not None
    asked = api(host, host.phase, loop=host.loop)
    answer: dict[str, str] = json.loads(await asked.cancel("root"))
    if host.world.disk.pop(DESIRED, None) is not None:
        host.wanted = host.world.current
        host.loop.look_again()
    return answer


async def until(host: Host, phase: Phase) -> asyncio.Task[None]:
    task = asyncio.create_task(host.settle())
    while host.phase is not phase:
        await asyncio.sleep(0.1)
    await asyncio.sleep(3)
    return task


async def test_a_wait_for_the_lease_ends_at_once() -> None:
    host = await started()
    task = await leasing(host)
    before = asyncio.get_running_loop().time()
    assert (await cancel(host))["effect"] == "end"
    await task
    assert asyncio.get_running_loop().time() - before < 5, "jane still holds the lease"
    assert outcomes(host)[-1] == ("b", "cancelled", 4)
    assert (host.phase, host.world.holder, host.world.request) == (Phase.IDLE, JANE, None)
    assert (status(host).desired, status(host).reason) == ("a", "")
    assert [e.message for e in host.world.events if isinstance(e, UpdateCancelled)] == [
        "root cancelled the update to b"
    ]


async def test_the_cancelled_config_is_applied_on_request_only() -> None:
    host = await started()
    task = await leasing(host)
    await cancel(host)
    await task
    host.world.holder = None
    host.want(B)
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, Reason.CANCELLED)
    assert "cancelled by root" in host.record.message
    await host.ask()
    assert (host.phase, outcomes(host)[-1]) == (Phase.IDLE, ("b", "done", 0))


async def test_a_staging_is_cancelled_and_its_deployment_discarded() -> None:
    host = await at_old()
    host.world.stage_seconds = 600
    host.want(NEW)
    task = await until(host, Phase.STAGING)
    assert (await cancel(host))["effect"] == "end"
    await task
    assert outcomes(host)[-1] == ("new", "cancelled", 4)
    assert not any(found.staged for found in host.world.deployments)


@pytest.mark.finding(
    "users: first trial of configs",
    "`cancel` ends an update: at once before the first write, and later without a reboot where what was done can be "
    "taken back.",
)
async def test_a_reboot_that_an_inhibitor_blocks_is_taken_back_without_one() -> None:
    host = await started()
    host.world.blockers = [BACKUP]
    host.want(REBOOTS)
    task = await until(host, Phase.REBOOTING)
    assert "/etc/unlisted" in host.world.disk
    assert (await cancel(host))["effect"] == "revert"
    await task
    assert "/etc/unlisted" not in host.world.disk
    assert (host.world.boot, host.world.holder, host.phase) == (1, None, Phase.IDLE)
    assert outcomes(host)[-1] == ("b", "cancelled", 4)
    assert (status(host).current, status(host).desired, status(host).reason) == ("a", "a", "")


async def test_an_os_update_is_taken_back_before_its_reboot() -> None:
    host = await at_old()
    before = booted_digest(host.world)
    host.world.blockers = [BACKUP]
    host.want(replace(NEW, files=REBOOTS.files))
    task = await until(host, Phase.REBOOTING)
    assert (await cancel(host))["effect"] == "revert"
    await task
    assert outcomes(host)[-1][1:] == ("cancelled", 4)
    assert (booted_digest(host.world), host.phase) == (before, Phase.IDLE)
    assert not any(found.staged for found in host.world.deployments), "a later reboot must not start it"


async def test_a_warning_of_users_is_taken_back() -> None:
    host = await started()
    host.limits = replace(host.limits, warn_users=60)
    host.world.logged_in = True
    host.want(REBOOTS)
    task = await until(host, Phase.REBOOTING)
    assert host.world.warned == 1
    await cancel(host)
    await task
    assert (host.world.boot, outcomes(host)[-1]) == (1, ("b", "cancelled", 4))


async def test_another_config_takes_back_what_waits_for_its_reboot() -> None:
    host = await started()
    host.world.blockers = [BACKUP]
    host.want(REBOOTS)
    task = await until(host, Phase.REBOOTING)
    host.want(C)
    await task
    folded, both = Status(), set()
    for event in host.world.events:
        folded = fold(folded, event)
        if folded.phase is Phase.REVERTING:
            both.add((folded.target, folded.desired, folded.reason))
    assert ("b", "c", "Superseded") in both, "the status has both names"
    assert outcomes(host)[-2:] == [("b", "superseded", 4), ("c", "done", 0)]
    assert (host.world.boot, "/etc/unlisted" in host.world.disk) == (1, False)


async def test_an_unusable_config_takes_nothing_back() -> None:
    host = await started()
    host.world.blockers = [BACKUP]
    host.want(REBOOTS)
    task = await until(host, Phase.REBOOTING)
    assert host.loop is not None

    async def unusable() -> None:
        raise InvalidInput("no YAML")

    source, host.loop.desired.source = host.loop.desired.source, unusable
    host.loop.look_again()
    await asyncio.sleep(5)
    host.loop.desired.source = source
    assert host.phase is Phase.REBOOTING
    host.world.blockers = []
    await task
    assert outcomes(host)[-1] == ("b", "done", 0)


STATES = [state for state in WORK if issubclass(state[0], Prepare | Apply) and state[1] is not Phase.RELEASING]


@pytest.mark.finding(
    "users: first trial of configs",
    "`cancel` ends an update: at once before the first write, and later without a reboot where what was done can be "
    "taken back.",
)
@pytest.mark.parametrize("state", STATES, ids=lambda state: f"{state[0].__name__}-{state[1]}")
@pytest.mark.parametrize("os", [False, True], ids=["files", "os"])
async def test_cancelled_as_each_phase_begins(state: tuple[type[Leg], Phase], os: bool) -> None:
    host = await (at_old() if os else started())
    current = host.world.current
    host.want(replace(NEW, files=REBOOTS.files) if os else REBOOTS)
    said: list[str] = []
    build = host.build

    def hooked(*_: object) -> object:
        loop = build()
        work = loop.executor.work[state]

        async def first(run: Run) -> Transition | None:
            if not said:
                said.append("")
                try:
                    said[0] = (await cancel(host))["effect"]
                except Refused as error:
                    said[0] = str(error.reason)
            return await work(run)

        loop.executor.work[state] = first
        return loop

    host.build = hooked  # type: ignore[method-assign,assignment]
    await host.settle()
    if not said:
        pytest.skip("this update does not pass it")
    late = said == ["CancelTooLate"]
    assert said == [{Prepare: "end", Apply: "CancelTooLate" if late else "revert"}[state[0]]]
    assert late == (host.world.boot > 1), "taken back without a reboot, or not at all"
    assert outcomes(host)[-1][1] == ("done" if late else "cancelled")
    assert (host.world.current == current) == (not late)
    assert (host.phase, host.world.holder, host.world.request) == (Phase.IDLE, None, None)


async def test_a_requested_reboot_is_not_cancelled() -> None:
    host = await started()
    host.want(REBOOTS)
    reasons: list[object] = []

    async def confirm_then_cancel(run: Run) -> Transition | None:
        done = await work(run)
        try:
            await cancel(host)
        except AgentError as error:
            reasons.append(error.reason)
        return done

    loop = host.build()
    state = (Apply, Phase.REBOOTING)
    work: Work = loop.executor.work[state]
    loop.executor.work[state] = confirm_then_cancel
    await host.turn_and_settle(loop)
    assert reasons == [Reason.CANCEL_TOO_LATE]
    assert (outcomes(host)[-1], host.world.request) == (("b", "done", 0), None)


async def test_without_an_update_there_is_nothing_to_cancel() -> None:
    host = await started()
    host.build()
    with pytest.raises(Refused) as caught:
        await cancel(host)
    assert caught.value.reason == Reason.NO_UPDATE


async def test_killed_at_each_moment_after_the_request() -> None:
    """The request is in the store; the daemon dies at each effect of the way back."""
    for fuse in range(200):
        host = await started()
        host.world.blockers = [BACKUP]
        host.want(REBOOTS)
        task = await until(host, Phase.REBOOTING)
        host.world.fuse = host.world.calls + fuse
        with contextlib.suppress(Killed):
            await cancel(host)
        await asyncio.sleep(100)
        blew = host.world.calls >= host.world.fuse
        host.world.fuse = -1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        host.world.blockers = []
        asked = host.world.request is not None or host.phase is not Phase.REBOOTING
        await host.settle()
        if asked and host.world.boot == 1:
            assert host.world.current == host.add(A), fuse
            assert "/etc/unlisted" not in host.world.disk, fuse
            assert outcomes(host)[-1][0] in ("a", "b"), fuse
            assert host.world.history[-1].outcome == "cancelled", fuse
        assert host.phase in (Phase.IDLE, Phase.DEGRADED), fuse
        assert (host.world.holder, host.world.request) == (None, None), fuse
        if not blew:
            break
    else:
        raise AssertionError("more moments than that")
    assert fuse > 8


async def test_a_cancellation_in_the_store_is_carried_out_after_a_restart() -> None:
    host = await started()
    task = await leasing(host)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    host.world.request = ApplyRequest(host.wanted, cancel=True, name="b", requester="root")
    await host.settle()
    assert host.world.history[-1].outcome == "cancelled"
    assert (host.phase, host.record.reason, host.world.request) == (Phase.DEGRADED, Reason.CANCELLED, None)


async def test_a_put_off_update_is_not_tried_again() -> None:
    host = await started()
    host.world.disk["/etc/quiet/q"] = RegularFile(b"by hand")
    host.want(B)
    await host.settle()
    assert host.phase is Phase.DEGRADED
    assert host.record.reason == Reason.DRIFTED
    answer = await cancel(host)
    assert (answer["effect"], answer["config"]) == ("end", "b")
    await host.settle()
    assert (host.phase, outcomes(host)[-1]) == (Phase.IDLE, ("b", "cancelled", 4))


@pytest.mark.parametrize("at", ["keep request", "install"])
async def test_a_full_disk_refuses_the_cancellation_and_the_update_goes_on(at: str) -> None:
    host = await started()
    host.world.blockers = [BACKUP]
    host.want(REBOOTS)
    task = await until(host, Phase.REBOOTING)
    host.world.faults.append(Fault(at, Terminal("No space left on device", reason=Reason.NO_SPACE)))
    with pytest.raises(Terminal) as caught:
        await cancel(host)
    assert caught.value.reason == Reason.NO_SPACE
    assert (host.phase, host.world.request) == (Phase.REBOOTING, None)
    # With space again, it is cancelled as if nothing had happened.
    assert (await cancel(host))["effect"] == "revert"
    await task
    assert (host.phase, host.world.boot, outcomes(host)[-1][1]) == (Phase.IDLE, 1, "cancelled")


async def test_an_update_whose_cancellation_was_refused_reaches_its_end() -> None:
    host = await started()
    host.world.blockers = [BACKUP]
    host.want(REBOOTS)
    task = await until(host, Phase.REBOOTING)
    host.world.faults.append(Fault("install", Terminal("read-only file system", reason=Reason.HOST_FAULT)))
    with pytest.raises(Terminal):
        await cancel(host)
    host.world.blockers = []
    await task
    await host.settle()
    assert (host.phase, outcomes(host)[-1][:2]) == (Phase.IDLE, ("b", "done"))


async def test_a_reboot_between_the_request_and_its_effect_makes_it_too_late() -> None:
    host = await started()
    host.world.blockers = [BACKUP]
    host.want(REBOOTS)
    task = await until(host, Phase.REBOOTING)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    host.world.request = ApplyRequest(host.wanted, cancel=True, name="b", requester="root")
    host.world.power_cut()
    loop = host.build()
    work: Work = loop.executor.work[Apply, Phase.VERIFYING]

    async def with_another_look(run: Run) -> Transition | None:
        loop.look_again()
        await asyncio.sleep(1)
        return await work(run)

    loop.executor.work[Apply, Phase.VERIFYING] = with_another_look
    await loop.resume()
    await host.turn_and_settle(loop)
    assert (outcomes(host)[-1], host.phase) == (("b", "done", 0), Phase.IDLE)
    refusals = [e.message for e in host.world.events if isinstance(e, Warned) and e.message.startswith("not cancelled")]
    assert refusals == ["not cancelled: this host has rebooted into b, and the way back is another reboot"]
