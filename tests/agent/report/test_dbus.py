# SPDX-License-Identifier: Apache-2.0
"""Work of the daemon that belongs to a caller on the bus, and the options of ``Plan``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import pytest

from nodeagent import installed
from nodeagent.agent.report import dbus as module
from nodeagent.agent.report.dbus import NAME, PATH, serve, while_connected
from nodeagent.agent.report.report import Report
from nodeagent.door import BusMethod, Caller, Door
from nodeagent.errors import AgentError, Refused, Terminal
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.codec import variant
from nodeagent.host.dbus.header import Message
from nodeagent.reasons import Reason
from nodeagent.report.status import Status
from nodeagent.update.history.lasting import Hold
from tests.support.fixtures import PrivateBus, private_bus
from tests.support.needs import acts_as_root

__all__ = ["private_bus"]

# Seconds for a whole test, on a machine with a load of 20.
PATIENCE = 240.0
MANAGER = f"{NAME}.Manager"


class Work:
    """Work without an end, unless it is allowed."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.may_end = asyncio.Event()
        self.ended = ""

    async def __call__(self) -> str:
        self.began.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.ended = "cancelled"
            raise
        self.ended = "done"
        return "answer"


async def test_work_ends_with_its_caller(private_bus: PrivateBus) -> None:
    async with Bus(private_bus.address) as bus, asyncio.timeout(PATIENCE):
        async with Bus(private_bus.address) as caller:
            await caller.call_bus("GetId")
            name, work = caller.unique_name, Work()
            running = asyncio.create_task(while_connected(bus, name, work))
            await work.began.wait()
        with pytest.raises(Refused) as caught:
            await running
        assert (caught.value.reason, work.ended) == ("Cancelled", "cancelled")
        late = Work()
        with pytest.raises(Refused):
            await while_connected(bus, name, late)
        assert not late.began.is_set(), "the caller has left before"


async def test_work_of_a_caller_that_stays_is_done(private_bus: PrivateBus) -> None:
    async with Bus(private_bus.address) as bus, Bus(private_bus.address) as caller, asyncio.timeout(PATIENCE):
        await caller.call_bus("GetId")
        work = Work()
        running = asyncio.create_task(while_connected(bus, caller.unique_name, work))
        await work.began.wait()
        work.may_end.set()
        assert (await running, work.ended) == ("answer", "done")


async def test_a_bus_that_is_gone_ends_the_work(private_bus: PrivateBus) -> None:
    async with Bus(private_bus.address) as bus, Bus(private_bus.address) as caller, asyncio.timeout(PATIENCE):
        await caller.call_bus("GetId")
        work = Work()
        running = asyncio.create_task(while_connected(bus, caller.unique_name, work))
        await work.began.wait()
        private_bus.stop()
        with pytest.raises(AgentError):
            await running
        assert work.ended == "cancelled"


async def nothing() -> None:
    return None


class Planner:
    """The part of ``Api`` for plans. A plan that stages takes until ``may_end``."""

    def __init__(self) -> None:
        self.work = Work()
        self.calls: list[dict[str, Any]] = []

    async def plan(self, text: str, **options: bool) -> str:
        self.calls.append(options)
        return await self.work() if options.get("stage") else text


@acts_as_root
async def test_a_plan_that_stages_delays_no_other_plan(private_bus: PrivateBus) -> None:
    api = Planner()

    async def plan(bus: Bus, **options: object) -> Any:
        given = {name: variant("b" if isinstance(value, bool) else "s", value) for name, value in options.items()}
        return (await bus.call(NAME, PATH, MANAGER, "Plan", "sa{sv}", ("config", given)))[0]

    async with (
        asyncio.timeout(PATIENCE),
        Bus(private_bus.address) as bus,
        Bus(private_bus.address) as client,
        serve(bus, Report(Status()), lambda: api, nothing),  # type: ignore[arg-type, return-value]
    ):
        staging = asyncio.create_task(plan(client, stage=True))
        await api.work.began.wait()
        assert await plan(client) == "config"
        api.work.may_end.set()
        assert await staging == "answer"
        assert [call.get("stage", False) for call in api.calls] == [True, False]
        with pytest.raises(AgentError) as caught:
            await plan(client, stage="yes")
        assert caught.value.reason == "BadOption"


class Applier:
    def __init__(self) -> None:
        self.calls: list[tuple[list[str], Hold | None]] = []

    async def apply(self, text: str, limits: list[str], hold: Hold | None, **flags: object) -> str:
        assert not any(flags.values())
        self.calls.append((limits, hold))
        return text


@pytest.mark.finding(
    "updates: limits after a failure", "A limit of the disruption holds for what follows a failed action, too."
)
@acts_as_root
async def test_a_limit_of_the_disruption_allows_no_fallback_reboot(private_bus: PrivateBus) -> None:
    api = Applier()

    async def apply(bus: Bus, **options: str | bool) -> tuple[list[str], bool]:
        given = {name: variant("b" if isinstance(value, bool) else "s", value) for name, value in options.items()}
        await bus.call(NAME, PATH, MANAGER, "Apply", "sa{sv}", ("config", given))
        limits, hold = api.calls[-1]
        return limits, hold is not None and hold.no_reboot

    async with (
        asyncio.timeout(PATIENCE),
        Bus(private_bus.address) as bus,
        Bus(private_bus.address) as client,
        serve(bus, Report(Status()), lambda: api, nothing),  # type: ignore[arg-type, return-value]
    ):
        for word in ("none", "reload", "restart", "drain"):
            assert await apply(client, max_disruption=word) == ([word], True)
        assert await apply(client, max_disruption="reboot") == (["reboot"], False)
        assert await apply(client) == ([], False)
        confirmed = await apply(client, planned_disruption="restart")
        assert confirmed == (["restart"], False), "that a plan was confirmed is no limit"
        assert await apply(client, max_disruption="drain", planned_disruption="restart") == (["drain", "restart"], True)
        assert await apply(client, no_reboot=True, max_disruption="reboot") == (["reboot"], True)
        with pytest.raises(AgentError) as caught:
            await apply(client, planned_disruption="little")
        assert caught.value.reason == "BadOption"


class WithCalls:
    def __init__(self) -> None:
        self.calls = {"Water": self.water, "Level": self.level}

    async def water(self, caller: Caller, values: Sequence[Any]) -> str:
        return f"{caller.name} at {caller.connection} waters {values[0]}"

    async def level(self, caller: Caller, values: Sequence[Any]) -> str:
        return f"{caller.name}{caller.connection}{list(values)}"


WATER: Final = BusMethod(name="Water", takes="s", arguments=("plant", "answer"), action="water")
LEVEL: Final = BusMethod(name="Level", arguments=("level",))


@acts_as_root
async def test_a_feature_adds_methods_that_change_or_read(
    private_bus: PrivateBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def authorize(_bus: Bus, _message: Message, action: str) -> None:
        asked.append(action)

    monkeypatch.setattr(module, "authorize", authorize)
    api = WithCalls()
    with installed.replaced([Door(title="Garden", page="garden.md", methods=(WATER, LEVEL))]):
        async with (
            asyncio.timeout(PATIENCE),
            Bus(private_bus.address) as bus,
            Bus(private_bus.address) as client,
            serve(bus, Report(Status()), lambda: api, nothing),  # type: ignore[arg-type, return-value]
        ):
            watered = await client.call(NAME, PATH, MANAGER, "Water", "s", ("a rose",))
            level = await client.call(NAME, PATH, MANAGER, "Level")
            assert (*watered, *level) == (f"root at {client.unique_name} waters a rose", "[]")
    assert asked == ["org.nodeagent.agent1.water"]


@acts_as_root
async def test_a_method_of_a_feature_fails_with_the_error_of_a_daemon_that_cannot_work(
    private_bus: PrivateBus,
) -> None:
    def refuse() -> NoReturn:
        raise Terminal("the store is damaged", reason=Reason.STORE_CORRUPT)

    with installed.replaced([Door(title="Garden", page="garden.md", methods=(WATER, LEVEL))]):
        async with (
            asyncio.timeout(PATIENCE),
            Bus(private_bus.address) as bus,
            Bus(private_bus.address) as client,
            serve(bus, Report(Status()), refuse, nothing),
        ):
            for name, signature, values in (("Water", "s", ("a rose",)), ("Level", "", ())):
                with pytest.raises(AgentError) as caught:
                    await client.call(NAME, PATH, MANAGER, name, signature, values)
                assert caught.value.reason == "StoreCorrupt"
