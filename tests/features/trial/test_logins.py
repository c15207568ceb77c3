# SPDX-License-Identifier: Apache-2.0
"""The session of a caller, from a logind on a private bus."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from dbus_next import Message, Variant

from nodeagent.errors import Refused
from nodeagent.features.trial.decide import Login
from nodeagent.features.trial.logins import Logins
from nodeagent.features.trial.reasons import TrialReason
from nodeagent.host.dbus.client import Bus
from tests.support.fake_peer import DBusFault, FakePeer
from tests.support.fixtures import PrivateBus

pytestmark = pytest.mark.usefixtures("no_leaked_fds")

PATH = "/org/freedesktop/login1/session/_37"
SESSION: dict[str, Variant] = {
    "Id": Variant("s", "7"),
    "Service": Variant("s", "sshd"),
    "Class": Variant("s", "user"),
    "RemoteHost": Variant("s", "192.0.2.7"),
    "TimestampMonotonic": Variant("t", 91_500_000),
}


@pytest.fixture
async def logind(private_bus: PrivateBus) -> AsyncIterator[FakePeer]:
    """A logind with one session."""
    peer = FakePeer("org.freedesktop.login1")
    peer.on("GetSessionByPID", lambda _: ("o", (PATH,)))
    peer.on("Get", lambda message: ("v", (SESSION[message.body[1]],)))
    await peer.start(private_bus.address)
    yield peer
    await peer.stop()


def _fails(name: str) -> Callable[[Message], Any]:
    def fail(_: Message) -> Any:
        raise DBusFault(name)

    return fail


async def test_the_session_of_the_process_of_the_caller(bus: Bus, logind: FakePeer) -> None:
    await bus.call_bus("GetId")
    assert await Logins(bus).of(bus.unique_name) == Login("7", "sshd", "user", 91.5, "192.0.2.7")
    assert logind.calls[0] == ("GetSessionByPID", [os.getpid()])
    assert {tuple(body) for member, body in logind.calls if member == "Get"} == {
        ("org.freedesktop.login1.Session", name) for name in SESSION
    }


@pytest.mark.parametrize("name", ["NoSessionForPID", "NoSuchSession"])
async def test_a_process_without_a_session_has_none(bus: Bus, logind: FakePeer, name: str) -> None:
    logind.on("GetSessionByPID", _fails(f"org.freedesktop.login1.{name}"))
    await bus.call_bus("GetId")
    assert await Logins(bus).of(bus.unique_name) is None


async def test_a_session_that_ends_in_between_is_none(bus: Bus, logind: FakePeer) -> None:
    logind.on("Get", _fails("org.freedesktop.DBus.Error.UnknownObject"))
    await refused(bus)


async def refused(bus: Bus, caller: str = "") -> None:
    await bus.call_bus("GetId")
    with pytest.raises(Refused) as error:
        await Logins(bus).of(caller or bus.unique_name)
    assert error.value.reason == TrialReason.NO_LOGIN


async def test_a_logind_that_fails_proves_nothing(bus: Bus, logind: FakePeer) -> None:
    logind.on("GetSessionByPID", _fails("org.freedesktop.DBus.Error.Failed"))
    await refused(bus)


async def test_a_host_without_logind_proves_nothing(bus: Bus) -> None:
    await refused(bus)


async def test_a_caller_that_has_left_proves_nothing(bus: Bus, logind: FakePeer) -> None:
    await refused(bus, ":1.9999")


async def test_an_answer_of_another_form_proves_nothing(
    bus: Bus, logind: FakePeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SESSION, "TimestampMonotonic", Variant("s", "long ago"))
    await refused(bus)
