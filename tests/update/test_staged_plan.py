# SPDX-License-Identifier: Apache-2.0
"""`nodeagent plan --stage`: the OS of a config is staged and locked, and nothing else happens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from nodeagent.agent.loop import Loop
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.deployment import Deployment, staged
from nodeagent.errors import AgentError, Refused, Retryable, Terminal
from nodeagent.host.store.record_codec import record_to_dict
from nodeagent.reasons import Reason
from nodeagent.report.status import Status
from nodeagent.report.status_fold import fold
from nodeagent.update.course import COURSE
from nodeagent.update.next import staged_plan
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.events import UpdateCancelled
from nodeagent.update.ports.system import StagingUnit
from nodeagent.update.record import OsProgress, half_way
from nodeagent.update.run import Run
from nodeagent.update.stages.guard import Guard
from nodeagent.update.states import Leg, Phase, Prepare, Rest
from tests.agent.test_api import api
from tests.world import FakeDeployments, Fault, Killed
from tests.world.os_host import A_DIGEST, B_DIGEST, C_DIGEST, FILES, KARGS, MORE, NEW, at_old, booted_digest, on
from tests.world.run import Host

pytestmark = pytest.mark.looptime


async def planned(host: Host, config: MachineConfig, loop: Loop | None = None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await api(host, loop=loop).plan(host.add(config), stage=True))
    return found


async def turned(host: Host) -> None:
    """Take a turn, as the loop does after each staging."""
    await host.build().turn()


def locked(host: Host) -> Deployment:
    found = staged(host.world.deployments)
    assert found is not None
    assert found.locked
    return found


async def staging(host: Host, config: MachineConfig, loop: Loop) -> asyncio.Task[dict[str, Any]]:
    """Return a plan whose staging has begun."""
    host.world.stage_seconds = 600
    work = asyncio.create_task(planned(host, config, loop))
    while not host.world.credentials:
        await asyncio.sleep(1)
    await asyncio.sleep(100)
    return work


def untouched(host: Host) -> None:
    assert host.world.boot == 1
    assert booted_digest(host.world) == A_DIGEST
    assert host.world.holder is None
    assert host.actions() == []
    assert [entry["to_name"] for entry in history(host)] == ["old"]


def history(host: Host) -> Sequence[dict[str, Any]]:
    return [{"to_name": entry.to_name} for entry in host.world.history]


async def test_the_os_is_staged_and_nothing_else_happens() -> None:
    host = await at_old()
    current = host.world.current
    answer = await planned(host, NEW)
    found = locked(host)
    assert (answer["staged"], answer["os"]["staged"], found.digest) == (True, found.id, B_DIGEST)
    assert answer["os"]["merged"] == []
    for _ in range(2):
        # Also a restart of the daemon keeps it.
        await turned(host)
    assert locked(host).id == found.id
    assert (host.phase, host.world.current, host.record.update_id) == (Phase.IDLE, current, "")
    untouched(host)


async def test_a_config_that_leaves_the_os_stages_nothing() -> None:
    host = await at_old()
    answer = await planned(host, on("a", "files", {"/etc/app/x": "2"}))
    assert (answer["staged"], "os" in answer) == (False, False)
    assert staged(host.world.deployments) is None
    assert host.record.os == OsProgress()


async def test_without_the_option_nothing_is_staged() -> None:
    host = await at_old()
    answer = json.loads(await api(host).plan(host.add(NEW)))
    assert "staged" not in answer
    assert staged(host.world.deployments) is None


async def test_an_apply_of_the_same_config_uses_it() -> None:
    host = await at_old()
    await planned(host, NEW)
    made = host.world.serial
    host.want(NEW)
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)
    assert host.world.serial == made, "staged once"
    assert host.record.os == OsProgress()


@pytest.mark.parametrize("then", [on("c", "other"), on("a", "files only", {"/etc/app/x": "3"}), KARGS])
async def test_another_config_replaces_or_discards_it(then: MachineConfig) -> None:
    host = await at_old()
    await planned(host, NEW)
    host.want(then)
    await host.settle()
    assert host.phase is Phase.IDLE, host.record
    assert staged(host.world.deployments) is None
    assert booted_digest(host.world) in (A_DIGEST, C_DIGEST)


async def test_a_second_plan_replaces_the_first() -> None:
    host = await at_old()
    await planned(host, NEW)
    await planned(host, on("c", "other"))
    assert locked(host).digest == C_DIGEST
    again = host.world.serial
    await planned(host, on("c", "renamed"))
    assert host.world.serial == again, "the same OS is staged already"


async def test_a_reboot_by_another_program_does_not_boot_it() -> None:
    host = await at_old()
    await planned(host, NEW)
    host.world.shut_down()
    await host.settle()
    assert booted_digest(host.world) == A_DIGEST
    assert staged(host.world.deployments) is None
    assert host.record.os == OsProgress(), "forgotten with the boot"


async def test_the_status_has_the_progress_and_stays_idle() -> None:
    host = await at_old()
    status = Status(current="old", desired="old")
    await planned(host, NEW)
    seen = []
    for event in host.world.events:
        status = fold(status, event)
        seen.append((status.phase, status.step.name if status.step else "", status.desired))
    assert (Phase.IDLE, "Importing layers", "old") in seen
    assert {phase for phase, *_ in seen} == {Phase.IDLE}
    assert (status.step, status.update_id) == (None, "")
    assert status.os_changes is not None


async def test_a_degraded_host_stays_degraded() -> None:
    host = await at_old()
    host.world.faults.append(Fault("guard", Refused("2 GiB", reason=Reason.NO_SPACE)))
    host.want(MORE)
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "NoSpace")
    host.world.events.clear()
    await planned(host, NEW)
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "NoSpace")
    assert locked(host).digest == B_DIGEST


class Noting(Guard):
    """Notes how often it is around a staging, and whether it is now."""

    def __init__(self) -> None:
        self.up, self.times = False, 0

    @asynccontextmanager
    async def around_staging(self, run: Run, unit: StagingUnit) -> AsyncIterator[None]:
        self.up, self.times = True, self.times + 1
        yield
        self.up = False


async def test_guards_are_around_it() -> None:
    host = await at_old()
    host.guards = [guard := Noting()]
    await planned(host, NEW)
    assert (guard.up, guard.times) == (False, 1)


async def test_a_deployment_of_another_program_is_not_replaced() -> None:
    host = await at_old()
    other = replace(host.world.deployments[0], id="os-cccc.9", booted=False, staged=True, locked=False)
    host.world.deployments.insert(0, other)
    with pytest.raises(Refused) as caught:
        await planned(host, NEW)
    assert caught.value.reason == "StagedByOther"
    await turned(host)
    assert staged(host.world.deployments) == other
    assert host.record.os == OsProgress()


async def test_while_another_holder_works_on_the_host_nothing_is_staged() -> None:
    host = await at_old()
    host.world.holder = Holder("admin", "maintenance", "disk swap", "")
    with pytest.raises(Refused) as caught:
        await planned(host, NEW)
    assert caught.value.reason == "LeaseHeld"
    assert host.world.credentials == []


@pytest.mark.parametrize("digest", [A_DIGEST, B_DIGEST])
async def test_during_an_update_nothing_is_staged(digest: str) -> None:
    host = await at_old()
    loop = host.build()
    host.world.stage_seconds = 600
    host.want(NEW if digest == B_DIGEST else on("c", "other"))
    turn = asyncio.create_task(loop.turn())
    while not host.world.credentials:
        await asyncio.sleep(1)
    with pytest.raises(Refused) as caught:
        await planned(host, NEW, loop)
    assert caught.value.reason == "UpdateUnderWay"
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)


@pytest.mark.parametrize(
    ("leg", "phase"), [(Prepare(), Phase.LEASING), (Rest(), Phase.IDLE)], ids=["under way", "interrupted"]
)
async def test_before_an_update_was_resumed_nothing_is_staged(leg: Leg, phase: Phase) -> None:
    host = await at_old()
    host.world.record = record_to_dict(replace(host.record, phase=phase, leg=leg, update_id="1"))
    with pytest.raises(Refused, match="an update is under way") as caught:
        await planned(host, NEW)
    assert caught.value.reason == "UpdateUnderWay"
    assert host.world.credentials == []


async def test_a_half_way_host_keeps_what_its_repair_needs() -> None:
    host = await at_old()
    host.limits = replace(host.limits, revert=False)
    host.world.faults.append(Fault("ignored reboot", times=None))
    host.want(MORE)
    await host.settle()
    assert half_way(host.record)
    before = host.record.os
    with pytest.raises(Refused) as caught:
        await planned(host, on("c", "other"))
    assert caught.value.reason == "UpdateUnderWay"
    assert host.record.os == before


async def test_two_plans_at_once() -> None:
    host = await at_old()
    loop = host.build()
    work = await staging(host, NEW, loop)
    with pytest.raises(Refused) as caught:
        await planned(host, on("c", "other"), loop)
    assert caught.value.reason == "UpdateUnderWay"
    assert (await work)["staged"]


async def test_a_requested_update_ends_it() -> None:
    host = await at_old()
    loop = host.build()
    work = await staging(host, NEW, loop)
    files = on("a", "files", {**FILES, "/etc/quiet/q": "2"})
    host.want(files)
    loop.look_again()
    with pytest.raises(Refused) as caught:
        await work
    assert caught.value.reason == "UpdateUnderWay"
    await loop.turn()
    assert (host.phase, host.record.os) == (Phase.IDLE, OsProgress())
    assert [entry.to_name for entry in host.world.history][-1] == "files"
    assert staged(host.world.deployments) is None


async def test_a_wake_of_the_loop_does_not_end_it() -> None:
    host = await at_old()
    loop = host.build()
    work = await staging(host, NEW, loop)
    loop.look_again()
    turn = asyncio.create_task(loop.turn())
    assert (await work)["staged"]
    await turn
    assert locked(host).digest == B_DIGEST


async def test_a_client_that_leaves_ends_it() -> None:
    host = await at_old()
    loop = host.build()
    work = await staging(host, NEW, loop)
    assert host.record.os.target is not None
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    await loop.turn()
    assert staged(host.world.deployments) is None
    assert (host.phase, host.record.os) == (Phase.IDLE, OsProgress())
    untouched(host)


async def test_a_failure_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    host = await at_old()
    host.world.faults.append(Fault("stage", Terminal("no such image", reason=Reason.IMAGE_NOT_FOUND)))
    with pytest.raises(AgentError) as caught:
        await planned(host, NEW)
    assert caught.value.reason == "ImageNotFound"
    await turned(host)
    assert (host.phase, host.record.os) == (Phase.IDLE, OsProgress())
    untouched(host)


async def test_a_result_that_cannot_be_discarded_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    host = await at_old()
    loop = host.build()
    made = FakeDeployments.stage

    async def stage_and_fail(self: FakeDeployments, *args: Any, **words: Any) -> Deployment:
        await made(self, *args, **words)
        raise Terminal("something else was staged", reason=Reason.STAGE_INCOMPLETE)

    async def fail(_self: FakeDeployments) -> None:
        raise Retryable("busy", reason=Reason.DISCARD_FAILED)

    monkeypatch.setattr(FakeDeployments, "stage", stage_and_fail)
    with pytest.raises(Terminal):
        await planned(host, NEW, loop)
    with monkeypatch.context() as patch:
        patch.setattr(FakeDeployments, "discard", fail)
        await loop.turn()
        assert locked(host).digest == B_DIGEST
    await loop.turn()
    assert staged(host.world.deployments) is None
    assert host.record.os == OsProgress()


async def test_it_has_a_deadline() -> None:
    host = await at_old()
    deadline = COURSE[Prepare, Phase.STAGING].deadline
    assert deadline is not None
    host.world.stage_seconds = deadline * 2
    with pytest.raises(Retryable) as caught:
        await planned(host, NEW)
    assert caught.value.reason == "PhaseLate"
    await turned(host)
    assert host.record.os == OsProgress()


async def test_a_call_that_is_late_is_not_a_late_staging() -> None:
    host = await at_old()
    host.world.faults.append(Fault("stage", TimeoutError("of a call")))
    with pytest.raises(TimeoutError, match="of a call"):
        await planned(host, NEW)


async def test_a_turn_that_does_not_end_is_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    host = await at_old()
    loop = host.build()
    async with loop._plans.alone:
        began = asyncio.get_running_loop().time()
        with pytest.raises(Refused):
            await planned(host, NEW, loop)
        assert asyncio.get_running_loop().time() - began == pytest.approx(staged_plan.TURN)


@pytest.mark.parametrize("power", [False, True])
async def test_kills_at_every_effect_leave_nothing_that_boots(power: bool) -> None:
    """The next life of the daemon keeps a complete staging, and discards any other."""
    for fuse in range(1, 60):
        host = await at_old()
        host.world.fuse = host.world.calls + fuse
        try:
            await planned(host, NEW)
            killed = False
        except Killed:
            killed = True
        host.world.fuse = -1
        if power:
            host.world.power_cut()
        await host.settle()
        found = staged(host.world.deployments)
        kept = host.record.os.kept is not None
        assert (found is not None) == kept, (fuse, host.record.os)
        assert found is None or found.locked
        assert not (power and kept)
        assert host.record.os.target is None
        assert booted_digest(host.world) == A_DIGEST
        assert host.phase is Phase.IDLE
        host.want(NEW)
        await host.settle()
        assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST), fuse
        if not killed:
            return
    raise AssertionError("it never ended")


async def cancelled(host: Host, loop: Loop) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await api(host, loop=loop).cancel("root"))
    return found


async def test_an_operator_cancels_it() -> None:
    host = await at_old()
    loop = host.build()
    work = await staging(host, NEW, loop)
    answer = await cancelled(host, loop)
    assert (answer["config"], answer["effect"], answer["update_id"]) == ("new", "staging", "")
    with pytest.raises(Refused, match="root cancelled the staging") as caught:
        await work
    assert caught.value.reason == "Cancelled"
    assert [event.message for event in host.world.events if isinstance(event, UpdateCancelled)] == [
        "root cancelled the staging of new"
    ]
    await loop.turn()
    assert staged(host.world.deployments) is None
    assert (host.phase, host.record.os, host.record.lasting.rejections) == (Phase.IDLE, OsProgress(), ())
    untouched(host)
    # No update was cancelled, so the same config is applied as any other.
    assert (await planned(host, NEW, loop))["staged"]


async def test_a_cancellation_after_its_end_finds_nothing() -> None:
    host = await at_old()
    loop = host.build()
    await planned(host, NEW, loop)
    with pytest.raises(Refused) as caught:
        await cancelled(host, loop)
    assert caught.value.reason == "NoUpdate"
    assert locked(host).digest == B_DIGEST


@pytest.mark.parametrize("seconds", [0, 1, 99, 599, 600, 601])
async def test_a_cancellation_at_any_moment_ends_it_or_comes_too_late(seconds: float) -> None:
    host = await at_old()
    loop = host.build()
    host.world.stage_seconds = 600
    work = asyncio.create_task(planned(host, NEW, loop))
    await asyncio.sleep(seconds)
    results = await asyncio.gather(cancelled(host, loop), work, return_exceptions=True)
    reasons = [found.reason if isinstance(found, AgentError) else "done" for found in results]
    assert reasons in (["done", "Cancelled"], ["NoUpdate", "done"])
    await loop.turn()
    assert (staged(host.world.deployments) is None) == (reasons[0] == "done")


async def test_without_a_config_the_desired_one_is_staged() -> None:
    host = await at_old()
    host.wanted = host.add(NEW)
    answer = json.loads(await api(host).plan("", stage=True))
    assert (answer["to"], locked(host).digest) == ("new", B_DIGEST)
    host.wanted = ""
    with pytest.raises(Refused, match="there is no desired config yet"):
        await api(host).plan("", stage=True)
