# SPDX-License-Identifier: Apache-2.0
"""A host in memory on which configs are tried."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from nodeagent.features.trial.decide import Login, Trial
from nodeagent.features.trial.guard import Trials
from nodeagent.update.history.lasting import Hold
from nodeagent.update.ports.store import ApplyRequest
from nodeagent.update.run import Ports
from nodeagent.update.states import Phase
from tests.update.test_kills import BUSY, OLD
from tests.world import FakeClock, FakePower, FakeStore, FakeUnit, World
from tests.world.run import Host

TRIAL = Trial("u1", "d1", "busy", "old", 600.0, "root", "2026-01-01T00:00:00.000Z", "boot-1", 100.0, 100.0)
NEW_LOGIN = Login("7", "sshd", "user", began=1e9, remote_host="192.0.2.7")


@dataclass
class TrialHost(Host):
    """``trials`` is the guard of the present life. ``keeps``: a new login keeps each trial as soon as it begins."""

    trials: Trials | None = None
    keeps: bool = False

    def ports(self) -> Ports:
        store, clock = FakeStore(self.world), FakeClock(self.world)
        self.trials = trials = _Kept if self.keeps else Trials  # type: ignore[assignment]
        self.trials = trials(store, clock, FakePower(self.world).boot_id, clock.monotonic)
        self.guards = [self.trials]
        return super().ports()

    def try_busy(self, seconds: int = 600) -> None:
        """Request ``BUSY`` on trial, as an operator does."""
        self.wanted = self.add(BUSY)
        hold = Hold("", requester="root", options={"trial": str(seconds)})
        self.world.request = ApplyRequest(self.wanted).held(hold)

    async def until_trial(self) -> asyncio.Task[None]:
        """Begin the update, and return the daemon when its trial is under way."""
        task = asyncio.create_task(self.settle())
        while not (self.phase is Phase.VERIFYING and self.record.reason == "" and self.world.notes.get("trial")):
            await asyncio.sleep(0.2)
        return task


class _Kept(Trials):
    def _show(self, *args: Any, **flags: Any) -> None:
        super()._show(*args, **flags)
        self.keeping = asyncio.ensure_future(self.keep("jane", new_login))


async def new_login() -> Login | None:
    return replace(NEW_LOGIN)


async def at_old(**flags: Any) -> TrialHost:
    units = {name: FakeUnit() for name in ("app.service", "web.service")}
    units["trust.service"] = FakeUnit(type="oneshot")
    units["app.service"].file = "enabled"
    host = TrialHost(World(units=units), **flags)
    host.want(OLD)
    await host.settle()
    host.world.done.clear()
    host.world.calls = 0
    return host
