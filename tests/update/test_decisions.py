# SPDX-License-Identifier: Apache-2.0
"""Single decisions of an update, each of which no other test of ring 1 notices."""

from __future__ import annotations

import asyncio

import pytest

from nodeagent.core.config.file_tree import RegularFile
from nodeagent.update.ports.events import Event, StepDone
from nodeagent.update.states import Phase
from nodeagent.update.steps.act import JOB_HEADROOM
from nodeagent.update.steps.unit_watch import PERIOD
from tests.support.keys import ed25519, sha512
from tests.world import FakeReporter, FakeUnit, FakeUnits, Killed
from tests.world.run import Host, config, until
from tests.world.world import World

pytestmark = pytest.mark.looptime

APP, RELOAD = "/etc/app/x", "/etc/web/x"


class Picky(FakeUnit):
    """Fails as long as it reads the new config."""

    world: World

    @property
    def bad_until_boot(self) -> int:
        return 99 if self.world.disk.get(APP) == RegularFile(b"2") else 0

    @bad_until_boot.setter
    def bad_until_boot(self, value: int) -> None: ...


def make_picky(host: Host) -> None:
    Picky.world = host.world
    host.world.units["app.service"] = Picky()


async def at(first: object) -> Host:
    host = Host(World(units={name: FakeUnit() for name in ("app.service", "web.service")}))
    host.want(first)  # type: ignore[arg-type]
    await host.settle()
    host.world.done.clear()
    return host


@pytest.mark.finding(
    "decisions: empty password hashes", "A revert never leaves an account with an empty password hash."
)
async def test_a_revert_leaves_no_account_open() -> None:
    key = ed25519("me")
    host = await at(config("a", {APP: "1"}, keys=[key]))
    host.world.passwords["core"] = ""
    make_picky(host)
    host.want(config("b", {APP: "2"}, keys=[key], password=sha512("b")))
    await host.settle()
    assert host.world.history[-1].outcome == "reverted"
    assert host.world.passwords["core"].startswith("!")


@pytest.mark.finding(
    "decisions: order of a revert", "A revert restores in reverse order: a directory of files becomes a file again."
)
async def test_a_file_that_became_a_directory_is_a_file_again() -> None:
    host = await at(config("a", {APP: "1", "/etc/quiet": "1"}))
    make_picky(host)
    host.want(config("b", {APP: "2", "/etc/quiet/a": "2", "/etc/quiet/b": "2"}))
    await host.settle()
    assert host.world.history[-1].outcome == "reverted"
    assert host.world.disk == {APP: RegularFile(b"1"), "/etc/quiet": RegularFile(b"1")}


@pytest.mark.finding("decisions: restarts without end", "A unit that systemd restarts again and again did not stay up.")
async def test_a_unit_that_is_restarted_by_systemd_is_not_good() -> None:
    host = await at(config("a", {APP: "1"}))
    host.want(config("b", {APP: "2"}))
    task = asyncio.create_task(host.settle())
    await until(host, Phase.VERIFYING)
    unit = host.world.units["app.service"]
    while host.phase is Phase.VERIFYING and host.world.boot == 1:
        unit.restarts, unit.invocation = unit.restarts + 1, unit.invocation + 1
        await asyncio.sleep(3 * PERIOD)
    await task
    assert host.actions() == ["restart app.service", "reboot"]
    assert host.world.history[-1].outcome == "done-after-fallback"


@pytest.mark.finding(
    "decisions: deadline of an action", "An action that systemd never answers is late in the agent as well."
)
async def test_an_action_without_an_answer_is_waited_for_with_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    host = await at(config("a", {RELOAD: "1"}))
    calls: list[str] = []
    reload = FakeUnits.reload

    async def silent(self: FakeUnits, unit: str, deadline: float) -> None:
        calls.append(unit)
        if len(calls) == 1:
            await asyncio.Event().wait()
        await reload(self, unit, deadline)

    monkeypatch.setattr(FakeUnits, "reload", silent)
    host.want(config("b", {RELOAD: "2"}))
    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(3600):
        await host.settle()
    assert asyncio.get_running_loop().time() - began > host.limits.action_timeout + JOB_HEADROOM
    assert calls == ["web.service"] * 2
    assert (host.phase, host.world.history[-1].outcome) == (Phase.IDLE, "done")


@pytest.mark.finding(
    "decisions: order of steps in the store", "A step that is done is in the store before the next one begins."
)
async def test_a_step_that_was_done_is_not_repeated_after_a_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    host = await at(config("a", {RELOAD: "1", APP: "1"}))
    emit, killed = FakeReporter.emit, []

    def kill_after_the_reload(self: FakeReporter, event: Event) -> None:
        emit(self, event)
        if isinstance(event, StepDone) and "web.service" in str(event) and not killed:
            killed.append(event)
            raise Killed

    monkeypatch.setattr(FakeReporter, "emit", kill_after_the_reload)
    host.want(config("b", {RELOAD: "2", APP: "2"}))
    await host.settle()
    assert killed
    assert host.actions() == ["reload web.service", "restart app.service"]
