# SPDX-License-Identifier: Apache-2.0
"""Turns of expensive calls: of one user one at a time, of all users other than root a part of the time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from nodeagent.agent.report import dbus
from nodeagent.agent.report.shown_history import ShownHistory
from nodeagent.agent.report.turns import Turns
from nodeagent.door import Call
from nodeagent.errors import InvalidInput
from nodeagent.host.dbus.header import Message, MessageKind
from nodeagent.update.history.entry import entry_to_dict
from nodeagent.update.ports.store import HistoryEntry
from tests.world.run import Host, config
from tests.world.store import FakeStore

pytestmark = pytest.mark.looptime

ALICE, BOB, ROOT = 1000, 1001, 0
READS = ("History", "Update", "EtcdStatus")


class Api:
    """Each call takes ``seconds``. ``most`` is the highest number of calls at once, by name."""

    def __init__(self, seconds: float = 1.0, size: int = 10) -> None:
        self.seconds = seconds
        self.size = size
        self.now: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self.done = 0

    async def _work(self, name: str) -> str:
        self.now[name] = self.now.get(name, 0) + 1
        self.most[name] = max(self.most.get(name, 0), self.now[name])
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.now[name] -= 1
        self.done += 1
        return "x" * self.size

    async def history(self, _limit: int) -> str:
        return await self._work("history")

    async def update(self, _update_id: str) -> str:
        return await self._work("history")

    @property
    def calls(self) -> Mapping[str, Call]:
        async def read(_caller: str, _values: Sequence[Any]) -> str:
            return await self._work("etcd")

        return {"EtcdStatus": read}

    async def plan(self, _text: str, **_options: bool) -> str:
        return await self._work("plan")

    async def verify(self) -> str:
        return await self._work("verify")


@pytest.fixture(autouse=True)
def _authorized(monkeypatch: pytest.MonkeyPatch) -> None:
    async def allow(*_args: object) -> None: ...

    monkeypatch.setattr(dbus, "authorize", allow)


def manager(api: Api) -> Any:
    async def nothing() -> None: ...

    return dbus._Manager(None, lambda: api, nothing)  # type: ignore[arg-type, return-value]


def call(uid: int, *body: Any) -> Message:
    return Message(MessageKind.CALL, sender=f":1.{uid}", uid=uid, body=body)


async def timed(work: Any) -> float:
    clock = asyncio.get_running_loop().time
    began = clock()
    await work
    return clock() - began


@pytest.mark.finding("attack: reads beside others", "A verification of root does not wait for plans of other users.")
async def test_a_verification_of_root_does_not_wait_for_plans() -> None:
    daemon = manager(Api(30.0))
    plans = [asyncio.create_task(daemon.plan(call(ALICE, "config", {}))) for _ in range(4)]
    await asyncio.sleep(1)
    assert await timed(daemon.verify(call(ROOT))) == pytest.approx(30.0)
    assert await timed(daemon.plan(call(ROOT, "config", {}))) == pytest.approx(30.0)
    assert not all(plan.done() for plan in plans)
    await asyncio.gather(*plans)


@pytest.mark.finding("attack: expensive reads", "A user has one expensive read at a time.")
async def test_a_user_has_one_call_of_each_kind_at_a_time() -> None:
    api = Api()
    daemon = manager(api)
    calls = [daemon.history(call(ALICE, 1000)) for _ in range(3)]
    calls += [daemon.update(call(ALICE, "0")) for _ in range(3)]
    calls += [daemon.plan(call(ALICE, "config", {})) for _ in range(3)]
    calls += [daemon.verify(call(ALICE)) for _ in range(3)]
    await asyncio.gather(*calls)
    assert api.most == {"history": 1, "plan": 1, "verify": 1}
    assert not daemon.turns._own


@pytest.mark.finding(
    "attack: expensive reads", "Reads of all users other than root take a part of the time of the daemon."
)
@pytest.mark.parametrize(("seconds", "size"), [(0.0, 10), (0.2, 10), (0.001, 1 << 20)])
async def test_many_users_get_a_part_of_the_time_together(seconds: float, size: int) -> None:
    api = Api(seconds, size)
    daemon = manager(api)

    async def flood(uid: int) -> None:
        while True:
            await daemon.history(call(uid, 1000))

    floods = [asyncio.create_task(flood(uid)) for uid in (ALICE, ALICE, BOB, BOB, 1002)]
    await asyncio.sleep(30)
    # Reads of root are as fast as ever.
    assert await timed(daemon.history(call(ROOT, 1000))) == pytest.approx(seconds)
    for task in floods:
        task.cancel()
    await asyncio.gather(*floods, return_exceptions=True)
    assert api.most["history"] <= 2
    assert 10 < api.done < 30 / max(0.05, seconds * 3, size / (2 << 20)) + 5


async def test_a_single_client_notices_no_pause() -> None:
    daemon = manager(Api(0.01))
    for _ in range(3):
        assert await timed(daemon.history(call(ALICE, 1000))) == pytest.approx(0.01)
        await asyncio.sleep(1)


async def test_a_cancelled_read_gives_its_turn_back() -> None:
    daemon = manager(Api(5.0))
    first, second = (asyncio.create_task(daemon.history(call(ALICE, 1))) for _ in range(2))
    await asyncio.sleep(1)
    second.cancel()
    first.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert await timed(daemon.history(call(BOB, 1))) < 9
    assert not daemon.turns._own


async def test_an_unknown_kind_has_turns_of_its_own() -> None:
    turns = Turns()
    async with turns.shared("a", ALICE), turns.shared("b", ALICE), turns.own("c", ALICE):
        pass


@pytest.mark.finding("attack: expensive reads", "The history is encoded once for each change of it.")
async def test_the_history_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host()
    for name in "ab":
        host.want(config(name, {"/etc/quiet/q": name}))
        await host.settle()
    reads = 0
    read = FakeStore.history

    async def count(self: FakeStore, limit: int, skip: int = 0) -> Sequence[HistoryEntry]:
        nonlocal reads
        reads += limit > 1
        return await read(self, limit, skip)

    monkeypatch.setattr(FakeStore, "history", count)
    shown = ShownHistory(FakeStore(host.world))
    newest, oldest = host.world.history[1], host.world.history[0]
    answers = await asyncio.gather(*(shown.text(1000) for _ in range(20)))
    assert reads == 1
    for answer, entries in ((answers[0], [newest, oldest]), (await shown.text(1), [newest]), (await shown.text(0), [])):
        assert json.loads(answer) == {"schema": "nodeagent/history/v1", "updates": [*map(entry_to_dict, entries)]}
    assert await shown.entry("", "") == newest
    assert await shown.entry(oldest.update_id[:12], "") == oldest
    assert await shown.entry("", "running") is None
    assert await shown.entry(newest.update_id, "running") == newest
    with pytest.raises(InvalidInput, match="is not in the history"):
        await shown.entry("none", "running")
    assert reads == 1
    host.want(config("c", {"/etc/quiet/q": "c"}))
    await host.settle()
    assert json.loads(await shown.text(1))["updates"][0]["to_name"] == "c"
    reads = 0
    await shown.text(1000)
    assert reads == 0
