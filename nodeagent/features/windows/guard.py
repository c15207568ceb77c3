# SPDX-License-Identifier: Apache-2.0
"""The place of the windows in the course of an update."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from nodeagent.core.plan.plan import disruption
from nodeagent.errors import InvalidInput
from nodeagent.features.windows.decide.estimate import Estimate, work_of
from nodeagent.features.windows.decide.start import ANY_TIME, RequestedStart, waits
from nodeagent.features.windows.decide.turn import HostTurn, Obstacle
from nodeagent.features.windows.decide.words import REASONS, moment, planned, too_long
from nodeagent.features.windows.decide.words import waits as words_of
from nodeagent.features.windows.reasons import WindowReason
from nodeagent.features.windows.times import Times
from nodeagent.update.run import Run, Update
from nodeagent.update.stages.guard import Guard
from nodeagent.update.wait import Delayed, NotNow


class TimeGuard(Guard):
    """An update begins at the time that an operator requested, and in a window."""

    def __init__(self, times: Times) -> None:
        self._times = times

    async def planned(self, update: Update, *, stops_node: bool) -> Sequence[str]:  # noqa: ARG002
        now = self._times.now()
        try:
            judged = await self._turn(update, now)
        except InvalidInput as error:
            return [f"windows: none is open: {error.message}"]
        return [planned(*judged, now)] if judged is not None else []

    async def check_request(self, run: Run) -> None:
        if run.hold is None:
            return
        options = run.hold.options
        start, now = RequestedStart(options.get("not_before", ""), options.get("window", "")), _now(run)
        try:
            zone = await self._times.zone() if start.window else UTC
        except InvalidInput as error:
            raise Delayed(error.message, reason=error.reason, after=None) from error
        if (waiting := waits(start, now, zone)) is None:
            return
        when = moment(waiting.until) if waiting.until else "a time that never comes"
        message = f"the update to {run.record.to_name} waits until {when}, as requested by {run.hold.requester}"
        after = (waiting.until - now).total_seconds() if waiting.until else None
        raise Delayed(message, reason=WindowReason.SCHEDULED, after=after)

    async def may_begin(self, run: Run) -> None:
        if run.hold is not None and run.hold.options.get("any_time") == ANY_TIME:
            return
        now = _now(run)
        try:
            judged = await self._turn(run.update, now)
        except InvalidInput as error:
            raise NotNow(f"no window is open: {error.message}", reason=WindowReason.WINDOW_CLOSED) from error
        if judged is None:
            return
        turn, estimate = judged
        if turn.obstacle is not None:
            after = (turn.begins - now).total_seconds() if turn.begins is not None else None
            # The minutes that are left differ with each attempt, and are worth one line of the journal.
            subject = "" if turn.obstacle is Obstacle.SHORT else None
            message, reason = words_of(turn, estimate, now), REASONS[turn.obstacle]
            raise NotNow(message, reason=reason, after=after, subject=subject, whole=True)
        if not turn.fits:
            run.report_failure("windows", f"continuing: {too_long(estimate)}", WindowReason.WINDOW_TOO_SHORT)

    async def _turn(self, update: Update, now: datetime) -> tuple[HostTurn, Estimate] | None:
        """Return when the update may begin, None if it always may. Raises ``InvalidInput`` (``TimeZoneUnknown``)."""
        openings = await self._times.openings()
        if openings is None:
            return None
        work = work_of(disruption(update.plan), changes_os=update.target is not None)
        estimate = await self._times.estimate(work)
        return await self._times.turn(openings, estimate.needed, now), estimate


def _now(run: Run) -> datetime:
    return datetime.fromisoformat(run.ports.clock.now())
