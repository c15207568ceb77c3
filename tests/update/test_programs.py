# SPDX-License-Identifier: Apache-2.0
"""Programs of the host that cannot be started, or give no result: the update waits, and writes nothing unchecked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.errors import AgentError, Problem
from nodeagent.host.checkers.job import checker_late
from nodeagent.host.programs import NotStarted
from nodeagent.update.ports.events import ConfigRefused, Warned
from nodeagent.update.states import Phase
from tests.agent.test_api import api
from tests.support.keys import ed25519, sha512
from tests.world import FakeUsers
from tests.world.run import Host, config, kinds

pytestmark = pytest.mark.looptime


class Checker:
    """Fails with ``fault`` for as many checks."""

    def __init__(self, fault: Callable[[], AgentError], times: int) -> None:
        self.fault = fault
        self.left = times
        self.checked = 0

    async def check(self, _old: MachineConfig, _new: MachineConfig) -> tuple[Problem, ...]:
        if self.left:
            self.left -= 1
            raise self.fault()
        self.checked += 1
        return ()


def no_fork() -> AgentError:
    return NotStarted("/usr/sbin/visudo", "Resource temporarily unavailable")


def late() -> AgentError:
    return checker_late("/usr/sbin/visudo", "no end within 60 s", ["/etc/quiet/x"])


async def at_old() -> Host:
    host = Host()
    host.want(config("a", {"/etc/quiet/x": "1"}, keys=[ed25519("me")], password=sha512("a")))
    await host.settle()
    return host


@pytest.mark.finding(
    "attack: programs that check a config", "An update waits for a checker that is installed and cannot be started."
)
async def test_an_update_waits_for_a_checker_that_cannot_be_started() -> None:
    host = await at_old()
    host.validators = [checker := Checker(no_fork, 3)]
    host.want(config("b", {"/etc/quiet/x": "2"}, keys=[ed25519("me")], password=sha512("a")))
    loop = host.build()
    while checker.left:
        assert host.world.disk["/etc/quiet/x"].content == b"1"
        delay = await loop.turn()
        assert delay is not None
        await asyncio.sleep(delay)
    await host.settle()
    assert checker.checked == 1
    assert (host.phase, host.world.history[-1].outcome) == (Phase.IDLE, "done")
    assert host.world.disk["/etc/quiet/x"].content == b"2"


@pytest.mark.finding(
    "attack: programs that check a config", "A file whose checker does not end is refused before the lease."
)
async def test_a_file_whose_checker_does_not_end_is_refused_before_the_lease() -> None:
    host = await at_old()
    host.validators = [checker := Checker(late, 1)]
    updates = len(host.world.history)
    host.want(config("b", {"/etc/quiet/x": "2"}, keys=[ed25519("me")], password=sha512("a")))
    loop = host.build()
    assert await loop.turn() is not None  # it is tried again
    assert kinds(host, ConfigRefused) == ["CheckerLate"]
    assert (host.world.disk["/etc/quiet/x"].content, host.world.holder) == (b"1", None)
    assert len(host.world.history) == updates
    await loop.turn()
    assert (checker.checked, host.world.history[-1].outcome) == (1, "done")


@pytest.mark.finding(
    "attack: programs that check a config", "A program that cannot be started is an outage that the update waits for."
)
@pytest.mark.parametrize("times", [1, 5])
async def test_an_update_waits_for_a_chpasswd_that_cannot_be_started(
    times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = await at_old()
    left = times
    set_hash = FakeUsers.set_password_hash

    async def refuse(self: FakeUsers, user: str, value: str) -> None:
        nonlocal left
        if left:
            left -= 1
            raise NotStarted("chpasswd", "Resource temporarily unavailable")
        await set_hash(self, user, value)

    monkeypatch.setattr(FakeUsers, "set_password_hash", refuse)
    host.want(config("b", {"/etc/quiet/x": "2"}, keys=[ed25519("me")], password=sha512("b")))
    await host.settle()
    assert (host.phase, host.record.reason, host.world.holder) == (Phase.IDLE, "", None)
    assert host.world.history[-1].outcome == "done"
    assert host.world.passwords["core"] == sha512("b")


class Warner:
    async def check(self, _old: MachineConfig, _new: MachineConfig) -> tuple[Problem, ...]:
        return (Problem("/etc/quiet/x", "line 2: Unknown key 'ExecStrat', ignoring.", warning=True),)


@pytest.mark.finding(
    "units: ignored lines", "A warning of a checker is in the plan and in the history, and refuses nothing."
)
async def test_a_warning_of_a_checker_refuses_nothing() -> None:
    host = await at_old()
    host.validators = [Warner()]
    host.want(config("b", {"/etc/quiet/x": "2"}, keys=[ed25519("me")], password=sha512("a")))
    note = "warning: /etc/quiet/x line 2: Unknown key 'ExecStrat', ignoring."
    assert note in json.loads(await api(host).plan(host.wanted))["notes"]
    await host.settle()
    assert host.world.history[-1].outcome == "done"
    assert note in [event.message for event in host.world.events if isinstance(event, Warned)]
