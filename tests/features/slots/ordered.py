# SPDX-License-Identifier: Apache-2.0
"""Agents whose requests and answers arrive in any order, at an API server in memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.kube.memory_api import MemoryClient

# Requests and answers after which a small fleet is done, in any order that was seen ten times over.
STEPS: Final = 20_000


class Killed(Exception):
    """The agent was killed before a request, or before its answer."""


@dataclass
class Order:
    """Lets one request or one answer arrive at a time, in an order that depends on ``seed`` only.

    ``kills`` and ``bursts`` are chances: that an agent is killed there, and that the one which was last continues, so
    that the others are slow.
    """

    seed: int
    kills: float = 0.0
    bursts: float = 0.0
    waiting: list[asyncio.Future[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    async def arrive(self, *, killed: bool = False) -> None:
        """Wait for the turn of this request. ``killed``: the agent may be killed there."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        await future
        if killed and self.chance.random() < self.kills:
            raise Killed

    async def run(self, tasks: Sequence[asyncio.Task[None]], after: Callable[[], None]) -> None:
        for _ in range(STEPS):
            while len(self.waiting) < sum(not task.done() for task in tasks):
                await asyncio.sleep(0)
            after()
            if not self.waiting:
                return
            following = -1 if self.chance.random() < self.bursts else self.chance.randrange(len(self.waiting))
            self.waiting.pop(following).set_result(None)
            await asyncio.sleep(0)
        raise AssertionError(f"not done after {STEPS} requests and answers")


class OrderedClient(MemoryClient):
    order: Order | None = None

    async def _once(self, *args: Any) -> Any:
        if self.order is None:
            return await super()._once(*args)
        await self.order.arrive(killed=True)
        try:
            return await super()._once(*args)
        finally:
            await self.order.arrive(killed=True)
