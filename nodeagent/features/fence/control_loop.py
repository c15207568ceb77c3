# SPDX-License-Identifier: Apache-2.0
"""The loop of the fence: sample the sensors, decide, set the limits, once a second until it is cancelled.

On ext4 a second loop writes the dirty data of the updater to the disk a little at a time (``syncfs``). There each piece
of a file that waits behind a cap keeps room in the journal reserved until it is written (fs/ext4/inode.c,
ext4_do_writepages). Once half of what a transaction may take is reserved, every writer waits. The kernel starts after
thirty seconds with old data, and then writes all of it, as does a program that syncs everything at its end. Frequent
small flushes avoid that. They change nothing of the disk and delay no program, but they also write the data of other
programs on that file system sooner.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from nodeagent.features.fence.actuators.actuators import Actuators
from nodeagent.features.fence.decide.bounds import Bounds
from nodeagent.features.fence.decide.controller import begin, step
from nodeagent.features.fence.decide.signals import weigh
from nodeagent.features.fence.decide.view import FenceView
from nodeagent.features.fence.reasons import FenceReason
from nodeagent.features.fence.sensors.sensors import Sensors, loop_time
from nodeagent.host.c_library import c_library

if TYPE_CHECKING:
    from nodeagent.features.fence.fence import ActiveFence

# Seconds between two decisions.
INTERVAL = 1.0
# Seconds between two samples of the dirty bytes.
FLUSH_INTERVAL = 0.25


class ControlLoop:
    """``begin`` sets the first limits, ``run`` adjusts them."""

    def __init__(self, fence: ActiveFence, actuators: Actuators, sensors: Sensors, bounds: Bounds) -> None:
        self._fence = fence
        self._actuators = actuators
        self._sensors = sensors
        self._bounds = bounds
        self._shape = actuators.queue_shape
        self._state = begin(loop_time(), self._shape, bounds)
        self._throttled = 0.0
        self._at = loop_time()
        # Replaces the message of the decision once the unit has nothing left to write.
        self.note = ""

    async def begin(self) -> None:
        await self._actuators.write_rate()
        await self._hold("")

    async def run(self) -> None:
        """Run until cancelled. A bug removes all limits, because nothing else would loosen them."""
        try:
            while True:
                await self._decide()
        except Exception as error:  # noqa: BLE001 - the update continues without a fence, whatever the error is
            self._fence.left[:] = await self._actuators.restore()
            self._fence.show(failed_view(self._fence.view, error))

    async def _decide(self) -> None:
        await asyncio.sleep(INTERVAL)
        writing = await self._actuators.write_rate()
        readings = self._sensors.readings()
        # Not earlier: a reading that is newer than the decision would be ignored.
        now = loop_time()
        reading = weigh(readings, now, self._bounds.stale)
        # A disk was added or removed, so the limits begin again with the new shape. The deadline stays.
        if self._actuators.queue_shape != self._shape:
            self._shape = self._actuators.queue_shape
            self._state = replace(begin(now, self._shape, self._bounds), started=self._state.started)
        self._state = step(self._state, now, reading, self._shape, self._bounds, writing=writing)
        await self._hold("" if reading is None else str(reading.source))

    async def _hold(self, source: str) -> None:
        decision, now = self._state.decision, loop_time()
        if self._fence.view.capped and not self.note:
            self._throttled += now - self._at
        self._at = now
        await self._actuators.hold(decision.limits)
        capped = decision.limits.write_bps is not None or decision.limits.write_iops is not None
        capped = capped and self._actuators.limiting
        self._fence.show(
            FenceView(
                active=True,
                reason=str(decision.why),
                message=self.note or decision.because,
                write_bps=decision.limits.rate if capped else None,
                write_iops=decision.limits.write_iops if capped else None,
                p99=self._sensors.p99(),
                exceedances=round(self._sensors.exceedances),
                throttled=self._throttled,
                seconds=now - self._state.started,
                source=source or self._fence.view.source,
                missing=(*self._actuators.missing, *self._sensors.missing),
            )
        )


def failed_view(view: FenceView, error: Exception) -> FenceView:
    return replace(view, active=False, reason=FenceReason.FENCE_FAILED, message=f"{type(error).__name__}: {error}")


async def flush_periodically(actuators: Actuators, paths: Sequence[str], limit: int) -> None:
    """Flush the file system of the first existing path whenever the unit has more than ``limit`` dirty bytes.

    Runs until cancelled.
    """
    while True:
        await asyncio.sleep(FLUSH_INTERVAL)
        # Little dirty data is left to the kernel; each sync costs the disk a flush.
        if await actuators.unwritten() > limit:
            await asyncio.to_thread(_sync, paths)


def _sync(paths: Sequence[str]) -> None:
    """Ignore errors of the file system: the syncs of the updater report them."""
    for path in paths:
        try:
            directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            with suppress(OSError):
                c_library().syncfs(directory)
        finally:
            os.close(directory)
        return
