# SPDX-License-Identifier: Apache-2.0
"""Authorization against a polkit that says yes, no, or nothing."""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import AsyncIterator
from typing import Any

import pytest

from nodeagent.errors import Refused
from nodeagent.host.dbus import polkit
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.header import Message, MessageKind
from nodeagent.host.dbus.polkit import authorize, caller_name
from tests.support.fake_peer import DBusFault, FakePeer
from tests.support.fixtures import PrivateBus

pytestmark = pytest.mark.usefixtures("no_leaked_fds")

ACTION = "org.nodeagent.agent1.apply"


def call_from(sender: str, *, interactive: bool = False) -> Message:
    return Message(
        MessageKind.CALL, "/", "org.nodeagent.Agent1.Manager", "Apply", sender=sender, interactive=interactive
    )


@pytest.fixture
async def caller(private_bus: PrivateBus) -> AsyncIterator[str]:
    async with await FakePeer().start(private_bus.address) as caller:
        yield caller.bus.unique_name


@pytest.fixture
async def authority(private_bus: PrivateBus) -> AsyncIterator[FakePeer]:
    async with await FakePeer("org.freedesktop.PolicyKit1").start(private_bus.address) as authority:
        authority.on("CancelCheckAuthorization", lambda _m: ("", ()))
        yield authority


@pytest.fixture
def not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    async def uid(bus: Bus, _message: Message) -> int:
        await bus.call_bus("GetId")  # the real one has a connection afterwards
        return 1000

    monkeypatch.setattr(polkit, "uid_of", uid)


def says(allowed: bool, challenge: bool = False) -> Any:
    return lambda _message: ("(bba{ss})", ([allowed, challenge, {}],))


async def test_who_is_it(bus: Bus, caller: str) -> None:
    assert await caller_name(bus, call_from(caller)) == pwd.getpwuid(os.geteuid()).pw_name
    with pytest.raises(Refused, match="disconnected"):
        await caller_name(bus, call_from(":1.999"))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it is about what root may")
async def test_root_needs_no_polkit(bus: Bus, caller: str, authority: FakePeer) -> None:
    await authorize(bus, call_from(caller), ACTION)
    assert not authority.calls


@pytest.mark.usefixtures("not_root")
async def test_yes(bus: Bus, caller: str, authority: FakePeer) -> None:
    authority.on("CheckAuthorization", says(True))
    await authorize(bus, call_from(caller), ACTION)
    await authorize(bus, call_from(caller, interactive=True), ACTION)
    (_, first), (_, second) = authority.calls
    kind, details = first[0]
    assert (kind, details["name"].value, first[1], first[2], first[3]) == ("system-bus-name", caller, ACTION, {}, 0)
    assert second[3] == 1
    assert first[4] != second[4]


async def test_a_decision_about_a_name_of_another_connection(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, caller: str, authority: FakePeer
) -> None:
    """After a restart of the bus the name of the caller may belong to a process of root."""

    async def uid(bus: Bus, _message: Message) -> int:
        await bus.call_bus("GetId")
        assert bus._connection is not None
        bus._connection.close("the bus was restarted")
        return 1000

    monkeypatch.setattr(polkit, "uid_of", uid)
    authority.on("CheckAuthorization", says(True))
    with pytest.raises(Refused, match="disconnected"):
        await authorize(bus, call_from(caller), ACTION)
    assert authority.members() == ["CheckAuthorization"]


@pytest.mark.usefixtures("not_root")
@pytest.mark.parametrize("challenge", [True, False])
async def test_no(bus: Bus, caller: str, authority: FakePeer, challenge: bool) -> None:
    authority.on("CheckAuthorization", says(False, challenge))
    with pytest.raises(Refused, match=ACTION) as caught:
        await authorize(bus, call_from(caller), ACTION)
    assert caught.value.reason == "NotAuthorized"
    assert bool(caught.value.hint) == challenge


@pytest.mark.usefixtures("not_root")
async def test_never_answers(bus: Bus, caller: str, authority: FakePeer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polkit, "ANSWER_TIMEOUT", 0.1)
    authority.on("CheckAuthorization", lambda _m: None)
    with pytest.raises(Refused) as caught:
        await authorize(bus, call_from(caller), ACTION)
    assert caught.value.reason == "NotAuthorized"
    (_, asked), (member, canceled) = authority.calls
    assert (member, canceled) == ("CancelCheckAuthorization", [asked[4]])


@pytest.mark.usefixtures("not_root")
async def test_the_daemon_stops_while_a_password_is_asked_for(bus: Bus, caller: str, authority: FakePeer) -> None:
    authority.on("CheckAuthorization", lambda _m: None)
    task = asyncio.create_task(authorize(bus, call_from(caller, interactive=True), ACTION))
    while not authority.calls:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert authority.members()[-1] == "CancelCheckAuthorization"


@pytest.mark.usefixtures("not_root")
async def test_errors_of_polkit_and_its_absence(bus: Bus, caller: str, private_bus: PrivateBus) -> None:
    with pytest.raises(Refused, match="for root"):
        await authorize(bus, call_from(caller), ACTION)

    def fail(_message: Any) -> None:
        raise DBusFault("org.freedesktop.PolicyKit1.Error.Failed", "no such action")

    async with await FakePeer("org.freedesktop.PolicyKit1").start(private_bus.address) as authority:
        authority.on("CheckAuthorization", fail)
        with pytest.raises(Refused) as caught:
            await authorize(bus, call_from(caller), ACTION)
        assert caught.value.reason == "NotAuthorized"
