"""The loop of the fence: sample the sensors, decide, set the limits, once a second until it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING

from nodeagent.core.update.fence_view import FenceView
from nodeagent.errors import AgentError
from nodeagent.fence.actuators.actuators import Actuators
from nodeagent.fence.blockdev.hotplug import Hotplug
from nodeagent.fence.policy.bounds import Bounds
from nodeagent.fence.policy.controller import begin, step
from nodeagent.fence.policy.disks import Disks
from nodeagent.fence.policy.signals import weigh
from nodeagent.fence.sensors.sensors import Sensors
from nodeagent.reasons import Reason

if TYPE_CHECKING:
    from nodeagent.fence.fence import ActiveFence

__all__ = ["INTERVAL", "ControlLoop", "DiskWatch", "FindDisks", "failed_view"]

INTERVAL = 1.0
"""Seconds between two decisions."""

FindDisks = Coroutine[None, None, Disks]


class DiskWatch:
    """Detects that the file system is on other disks: a path of a multipath was lost, or a mirror was replaced."""

    def __init__(self, events: asyncio.Queue[Hotplug] | None, disks: Disks, find: Callable[[], FindDisks]) -> None:
        self._events = events
        self._disks = disks
        self._find = find

    async def poll(self) -> Disks | None:
        """Return the new disks; None if they did not change, or cannot be determined until the next event."""
        if self._events is None or self._events.empty():
            return None
        while not self._events.empty():
            self._events.get_nowait()
        try:
            found = await self._find()
        except AgentError:
            return None
        if found == self._disks:
            return None
        self._disks = found
        return found


class ControlLoop:
    """``begin`` sets the first limits, ``run`` adjusts them."""

    def __init__(
        self, fence: ActiveFence, actuators: Actuators, sensors: Sensors, bounds: Bounds, watch: DiskWatch
    ) -> None:
        self._fence = fence
        self._actuators = actuators
        self._sensors = sensors
        self._bounds = bounds
        self._watch = watch
        self._shapes = actuators.shapes
        self._state = begin(_now(), self._shapes, bounds)
        self._throttled = 0.0
        self._at = _now()
        self.note = ""
        """Replaces the message of the decision once the unit has nothing left to write."""

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
        if (disks := await self._watch.poll()) is not None:
            await self._actuators.move(disks)
        writing = await self._actuators.write_rate()
        readings = self._sensors.readings()
        # Not earlier: a reading that is newer than the decision would be ignored.
        now = _now()
        reading = weigh(readings, now, self._bounds.stale)
        if self._actuators.shapes != self._shapes:
            self._shapes = self._actuators.shapes
            self._state = replace(begin(now, self._shapes, self._bounds), started=self._state.started)
        self._state = step(self._state, now, reading, self._shapes, self._bounds, writing=writing)
        await self._hold("" if reading is None else str(reading.source))

    async def _hold(self, source: str) -> None:
        decision, now = self._state.decision, _now()
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
    return replace(view, active=False, reason=Reason.FENCE_FAILED, message=f"{type(error).__name__}: {error}")


def _now() -> float:
    return asyncio.get_running_loop().time()
