# SPDX-License-Identifier: Apache-2.0
"""Deployments of other programs, which a reboot of an update would boot, and what they do to the one of the agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from nodeagent.agent.plan_answer import plan_answer
from nodeagent.agent.report.report import Report
from nodeagent.agent.staged_watch import NEXT_BOOT, STAGED, StagedWatch
from nodeagent.report.status import Status
from nodeagent.update.history.lasting import Hold
from nodeagent.update.ports.events import UpdateWaiting
from nodeagent.update.ports.system import Inhibitor
from nodeagent.update.states import Phase
from tests.world.os_host import A_DIGEST, B_DIGEST, FIRST, NEW, at_old, booted_digest, on
from tests.world.run import Host, config, kinds, until

pytestmark = pytest.mark.looptime

FILES = {"/etc/app/x": "1", "/etc/quiet/q": "1", "/etc/other.conf": "other"}
REBOOT = on("a", "reboot", FILES)
ELSE = "os-bbbb.9"


def another_stages(host: Host, *, locked: bool = False) -> None:
    """As ``rpm-ostree rebase`` or ``bootc switch`` of an admin."""
    other = replace(FIRST, id=ELSE, version="2", digest=B_DIGEST, checksum=B_DIGEST, staged=True, booted=False)
    host.world.deployments.insert(0, replace(other, locked=locked))


@pytest.mark.finding(
    "OS: what a boot brings",
    "An update that would reboot into the OS of another program waits, and is not written before.",
)
@pytest.mark.parametrize("queued", [False, True], ids=["staged", "next in the boot order"])
async def test_a_reboot_for_files_waits_for_the_deployment_of_another_program(queued: bool) -> None:
    host = await at_old()
    another_stages(host)
    if queued:
        host.world.deployments[0] = replace(host.world.deployments[0], staged=False, locked=None)
    host.want(REBOOT)
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(200)
    assert (host.phase, host.world.boot) == (Phase.LEASING, 1)
    assert "/etc/other.conf" not in host.world.disk
    assert set(kinds(host, UpdateWaiting)) == {"StagedByOther"}
    # The admin drops it: rpm-ostree cleanup -p.
    del host.world.deployments[0]
    await task
    assert (host.phase, booted_digest(host.world), host.world.history[-1].reboots) == (Phase.IDLE, A_DIGEST, 1)


@pytest.mark.finding(
    "OS: what a boot brings", "A deployment that is staged between the writing and the reboot is waited for."
)
async def test_a_deployment_that_is_staged_before_the_reboot_is_waited_for() -> None:
    host = await at_old()
    host.world.blockers.append(Inhibitor("backup", "nightly", "rsync"))
    host.want(REBOOT)
    task = asyncio.create_task(host.settle())
    await until(host, Phase.REBOOTING)
    another_stages(host)
    host.world.blockers.clear()
    await asyncio.sleep(200)
    assert (host.phase, host.world.boot) == (Phase.REBOOTING, 1)
    del host.world.deployments[0]
    await task
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, A_DIGEST)


@pytest.mark.finding("OS: what a boot brings", "With --boot-staged the reboot boots the deployment of another program.")
async def test_an_operator_may_let_the_reboot_boot_it() -> None:
    host = await at_old()
    another_stages(host)
    host.want(config("reboot", FILES))
    loop = host.build()
    async with loop.recorded(host.request().held(Hold("", requester="jane", boot_staged=True))):
        pass
    await host.turn_and_settle(loop)
    assert (host.phase, booted_digest(host.world), host.world.boot) == (Phase.IDLE, B_DIGEST, 2)


@pytest.mark.parametrize("locked", [True, False])
async def test_an_update_that_does_not_reboot_waits_for_no_deployment(locked: bool) -> None:
    host = await at_old()
    another_stages(host, locked=locked)
    host.want(on("a", "files", {"/etc/app/x": "2"}))
    await host.settle()
    assert (host.phase, host.actions()) == (Phase.IDLE, ["restart app.service"])


async def test_a_locked_deployment_of_another_program_boots_with_no_reboot() -> None:
    host = await at_old()
    another_stages(host, locked=True)
    host.want(REBOOT)
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, A_DIGEST)


@pytest.mark.finding(
    "OS: what a boot brings", "The plan names the deployment of another program that its reboot would boot."
)
async def test_the_plan_names_it() -> None:
    host = await at_old()
    loop = host.build()

    async def notes() -> list[str]:
        update = await loop.check(await host._load(host.add(REBOOT)))
        answer: dict[str, Any] = await plan_answer(loop.ports, update, diff=False, private=False)
        return [note for note in answer["notes"] if "StagedByOther" in note]

    assert await notes() == []
    another_stages(host)
    (note,) = await notes()
    assert ELSE in note
    assert "--boot-staged" in note


class Watched:
    """The watch beside an update of ``host`` that waits with a staged deployment."""

    def __init__(self, host: Host) -> None:
        assert host.loop is not None
        assert host.loop.ports.os is not None
        self.host, self.report = host, Report(Status())
        loop = host.loop
        self.watch = StagedWatch(loop.ports, loop.ports.os, self.report, lambda: loop.executor.update)

    async def problems(self) -> dict[str, str]:
        await self.watch.check()
        return {problem.topic: problem.reason for problem in self.report.status.problems}

    def unlock(self) -> None:
        """As ``bootc upgrade`` or ``ostree admin lock-finalization --unlock``."""
        world = self.host.world
        world.deployments[0] = replace(world.deployments[0], locked=False)


@asynccontextmanager
async def waiting() -> AsyncIterator[Watched]:
    host = await at_old()
    host.want(NEW)
    host.world.request = host.request().held(Hold("", no_reboot=True, requester="jane"))
    task = asyncio.create_task(host.settle())
    await until(host, Phase.LEASING)
    try:
        yield Watched(host)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.finding(
    "OS: locked deployments",
    "A deployment of the agent that another program unlocks is locked again once, and then reported.",
)
async def test_an_unlocked_deployment_is_locked_again_once_then_reported() -> None:
    async with waiting() as it:
        assert await it.problems() == {}
        it.unlock()
        assert await it.problems() == {}
        assert it.host.world.deployments[0].locked
        it.unlock()
        assert await it.problems() == {STAGED: "StagedUnlocked"}
        assert not it.host.world.deployments[0].locked, "no fight with another program"
        it.host.world.deployments[0] = replace(it.host.world.deployments[0], locked=True)
        assert await it.problems() == {}


@pytest.mark.finding("OS: locked deployments", "A deployment of another program is reported, and never touched.")
async def test_a_deployment_of_another_program_is_reported_and_never_touched() -> None:
    async with waiting() as it:
        it.host.world.drop_staged()
        another_stages(it.host)
        before = list(it.host.world.deployments)
        assert await it.problems() == {STAGED: "StagedLost", NEXT_BOOT: "StagedByOther"}
        assert it.host.world.deployments == before


async def test_at_rest_only_the_deployment_of_another_program_is_reported() -> None:
    host = await at_old()
    host.build()
    it = Watched(host)
    assert await it.problems() == {}
    another_stages(host)
    assert await it.problems() == {NEXT_BOOT: "StagedByOther"}
    del host.world.deployments[0]
    assert await it.problems() == {}
