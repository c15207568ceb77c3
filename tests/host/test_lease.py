# SPDX-License-Identifier: Apache-2.0
"""The local lease: one holder, across restarts, and who it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.errors import Refused
from nodeagent.host.lease import LocalLease
from nodeagent.host.store.store import SqliteStore
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.stages.coordination import Coordination, Operation


class Clock:
    ticks = 0

    def now(self) -> str:
        self.ticks += 1
        return f"2026-01-01T00:00:0{self.ticks}.000Z"

    def monotonic(self) -> float:
        return 0.0


async def test_one_holder_across_restarts(tmp_path: Path) -> None:
    clock = Clock()
    async with SqliteStore(tmp_path / "s/state.db") as store:
        lease = LocalLease(store, clock)
        assert await lease.holder() is None
        await lease.acquire("nodeagent", "u1", "update to rendered-1")
        await lease.acquire("nodeagent", "u1", "after a crash")
        assert await lease.holder() == Holder("nodeagent", "u1", "update to rendered-1", "2026-01-01T00:00:01.000Z")

    async with SqliteStore(tmp_path / "s/state.db") as store:
        lease = LocalLease(store, clock)
        await lease.check("u1")
        await lease.acquire("nodeagent", "u1", "after the reboot")
        for who, operation in (("admin", "maintenance"), ("nodeagent", "u2")):
            with pytest.raises(Refused) as caught:
                await lease.acquire(who, operation, "mine")
            assert caught.value.reason == "LeaseHeld"
            for word in ("nodeagent", "u1", "update to rendered-1", "2026-01-01T00:00:01.000Z"):
                assert word in caught.value.message

        await lease.release("u2")
        await lease.check("u1")
        await lease.release("u1")
        await lease.release("u1")
        assert await lease.holder() is None
        await lease.acquire("admin", "maintenance", "")
        assert (await lease.holder() or Holder("", "", "", "")).name == "admin"


async def test_check_says_who_has_it_now(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "s/state.db") as store:
        lease = LocalLease(store, Clock())
        with pytest.raises(Refused, match="released") as caught:
            await lease.check("u1")
        assert caught.value.reason == "LeaseLost"
        await lease.acquire("admin", "maintenance", "new memory")
        with pytest.raises(Refused, match=r"admin.*new memory") as caught:
            await lease.check("u1")
        assert caught.value.reason == "LeaseLost"


async def test_extended_it_says_until_when_and_does_not_expire(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "s/state.db") as store:
        lease = LocalLease(store, Clock())
        with pytest.raises(Refused) as caught:
            await lease.extend("maintenance.1", 60)
        assert caught.value.reason == "LeaseLost"
        await lease.acquire("admin", "maintenance.1", "new memory")
        await lease.extend("maintenance.1", 7200)
        assert (await lease.holder() or Holder("", "", "", "")).expires == "2026-01-01T02:00:02.000Z"
        with pytest.raises(Refused):
            await lease.extend("u1", 60)
    async with SqliteStore(tmp_path / "s/state.db") as store:
        lease = LocalLease(store, Clock())
        await lease.extend("maintenance.1", None)
        assert (await lease.holder() or Holder("", "", "", "")).expires == ""


async def test_a_reserved_lease_is_for_one_operation_only(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "s/state.db") as store:
        coordination = Coordination(LocalLease(store, Clock()))
        first, second = Operation("u1", "nodeagent", "update"), Operation("u2", "nodeagent", "update")
        maintenance = Operation("maintenance.1", "jane", "disks", queued=False)
        await coordination.acquire(first)
        coordination.reserve("maintenance.1", "jane waits for it")
        await coordination.lease.check("u1")
        await coordination.release(first)
        with pytest.raises(Refused, match="jane waits for it") as caught:
            await coordination.acquire(second)
        assert caught.value.reason == "LeaseHeld"
        await coordination.acquire(maintenance)
        await coordination.release(maintenance)
        coordination.reserve("", "")
        await coordination.acquire(second)
