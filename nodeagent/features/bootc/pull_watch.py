# SPDX-License-Identifier: Apache-2.0
"""How far the pull of an image is, and whether it still moves.

`ostree container` draws its progress on a terminal, and prints none elsewhere but how many layers it needs. Each layer
that the repository has is a ref. The rest is counted by systemd: what the unit received, and how long it computed. No
signal says that a counter has changed, so they are looked at now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from nodeagent.core.plan.deployment import StageProgress
from nodeagent.errors import AgentError
from nodeagent.features.bootc.decide.movement import Consumed, Movement, counters, needed_layers
from nodeagent.host.dbus.client import Bus
from nodeagent.host.systemd_jobs import MANAGER, NAME, PATH, SERVICE

_LAYERS: Final = "ostree/repo/refs/heads/ostree/container/blob"


class PullWatch:
    """Watches the unit of one pull. ``task`` names the pull. ``root`` is for tests."""

    def __init__(self, unit: str, task: str, make_bus: Callable[[], Bus], root: Path) -> None:
        self._unit = unit
        self._task = task
        self._make_bus = make_bus
        self._layers = root / _LAYERS

    async def follow(
        self,
        every: float,
        read_output: Callable[[], str],
        on_progress: Callable[[StageProgress], None],
        on_movement: Callable[[], None],
    ) -> None:
        """Report the progress until this is cancelled, and call ``on_movement`` while the unit moves.

        It looks ``every`` so many seconds. ``read_output`` reads what the unit has printed; it blocks.
        """
        movement = Movement()
        before = await asyncio.to_thread(self._count)
        while True:
            await asyncio.sleep(every)
            try:
                now = await self._counters()
                needed = needed_layers(await asyncio.to_thread(read_output))
            except (AgentError, OSError):
                # Without an answer nothing is known. The pull has a deadline all the same.
                on_movement()
                continue
            if movement.moved(now):
                on_movement()
            done = await asyncio.to_thread(self._count) - before
            on_progress(StageProgress(self._task, max(0, min(done, needed)), needed, now.received))

    async def _counters(self) -> Consumed:
        async with self._make_bus() as bus:
            (path,) = await bus.call(NAME, PATH, MANAGER, "GetUnit", "s", (self._unit,))
            received, worked = [await bus.get(NAME, path, SERVICE, name) for name in ("IPIngressBytes", "CPUUsageNSec")]
        return counters(received, worked)

    def _count(self) -> int:
        try:
            return sum(1 for _ in self._layers.iterdir())
        except OSError:
            return 0
