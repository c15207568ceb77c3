# SPDX-License-Identifier: Apache-2.0
"""A trial in the course of an update: the last part of its verification waits for an operator.

Until then the update holds the lease, and everything that it wrote can be taken back, on the way of any other failure:
files, units, the OS, with a reboot where one is needed, and without an answer of another host. Nothing else begins in
the meantime, because an update is under way. What the operator decided is in the store before it takes effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final

from nodeagent.core.times import seconds_until
from nodeagent.errors import Refused, Terminal
from nodeagent.features.trial.decide import (
    NOTE,
    WARN_BEFORE,
    Login,
    Trial,
    from_text,
    in_words,
    requested,
    to_text,
    why_no_proof,
)
from nodeagent.features.trial.events import TrialBegun, TrialEnding, TrialKept, TrialNotKept
from nodeagent.features.trial.reasons import TrialReason
from nodeagent.tasks import pause
from nodeagent.update.history.lasting import Hold
from nodeagent.update.ports.events import UpdateWaiting
from nodeagent.update.ports.host import Clock
from nodeagent.update.ports.store import Store
from nodeagent.update.run import Run, time_of
from nodeagent.update.stages.guard import Guard
from nodeagent.update.states import Apply, Fallback, Phase

# Seconds between two looks at the clock. The deadline of a verification begins again with each.
TICK: Final = 60.0

# Seconds by which the wall clock must be set before the end is shown again.
CLOCK_SET: Final = 5.0


@dataclass(eq=False)
class Trials(Guard):
    """``boot_id`` returns the identity of this boot, ``login_clock`` the seconds of CLOCK_MONOTONIC."""

    store: Store
    clock: Clock
    boot_id: Callable[[], str]
    login_clock: Callable[[], float]
    _decided: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    # Held while it is decided what becomes of the trial, so that one that is kept is not taken back as well.
    _deciding: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def may_request(self, hold: Hold | None, *, reverts: bool) -> None:
        trial = await self._under_way()
        if trial is not None:
            raise Refused(f"{trial.config} is on trial, and nothing else begins", reason=TrialReason.ON_TRIAL)
        if hold is not None and hold.options.get("trial") and not reverts:
            raise Refused("the settings keep a bad config, so none can be tried", reason=TrialReason.NO_WAY_BACK)

    async def before_good_end(self, run: Run) -> None:
        hold, update = run.hold, run.update
        seconds = requested(hold.options.get("trial", "")) if hold is not None else 0
        # A config that changes nothing needs no way back.
        if hold is None or not seconds or not (update.writes or update.acts or update.target is not None):
            return
        # In the store before anything waits for it: a killed agent goes on with the same time.
        trial = await self._begin(run, hold, seconds)
        shown, warned = "", False
        while True:
            self._decided.clear()
            if await self._over(run, trial):
                return
            left = trial.left(self.clock.monotonic())
            until = time_of(run.ports, trial.began + trial.seconds)
            if not shown or abs(seconds_until(until, shown) or 0.0) >= CLOCK_SET:
                self._show(run, trial, until, again=bool(shown))
                shown = until
            warning = left - min(WARN_BEFORE, seconds / 4)
            if warning <= 0 and not warned:
                warned = True
                run.narrate(TrialEnding, trial)
            # The deadline of the phase is for a verification that hangs, and not for an operator who takes his time.
            update.progressed()
            await pause(min(TICK, left, *([warning] if warning > 0 else [])), self._decided)

    async def _begin(self, run: Run, hold: Hold, seconds: int) -> Trial:
        """Return the stored trial, or a new one, which is in the store."""
        record, boot_id = run.record, self.boot_id()
        before = from_text(await self.store.note(NOTE))
        if before is not None and before.continues(record.update_id, boot_id):
            return before
        trial = Trial(
            record.update_id,
            record.to_digest,
            record.to_name,
            record.from_name,
            seconds,
            hold.requester,
            self.clock.now(),
            boot_id,
            self.clock.monotonic(),
            self.login_clock(),
        )
        await self.store.keep_note(NOTE, to_text(trial))
        return trial

    async def _over(self, run: Run, trial: Trial) -> bool:
        """Return whether the config is kept. Raises ``Refused`` (``NotKept``) if it is not, and its time is over."""
        async with self._deciding:
            now = from_text(await self.store.note(NOTE)) or trial
            if now.kept_by:
                run.narrate(TrialKept, now)
                run.update.add_notes(f"kept by {now.kept_by} in its trial of {in_words(now.seconds)}")
                return True
            if not now.over and trial.left(self.clock.monotonic()) > 0:
                return False
            if not now.over:
                # From here on it is too late to keep it, also after another boot.
                now = replace(now, over=True)
                await self.store.keep_note(NOTE, to_text(now))
            run.narrate(TrialNotKept, now)
            raise Refused(now.end.message, reason=now.end.reason)

    def _show(self, run: Run, trial: Trial, until: str, *, again: bool) -> None:
        run.narrate(TrialBegun, trial, until, again)
        message = f"{trial.config} is on trial until {until}"
        run.update.narrate(run.ports, UpdateWaiting, message, TrialReason.ON_TRIAL, routine=again)

    # Requests.

    async def keep(self, caller: str, session: Callable[[], Awaitable[Login | None]] | None) -> Trial:
        """Keep the config on trial, and return it. ``session`` returns that of the caller; None: no proof is needed.

        Raises ``Refused`` (``NoTrial``, ``OldLogin``, ``NoLogin``).
        """
        trial = await self._in_time()
        if session is not None and (cause := why_no_proof(await session(), trial)) is not None:
            raise Refused(cause.message, reason=cause.reason)
        return await self._decide(kept_by=caller)

    async def take_back(self, caller: str) -> Trial:
        """End the trial now, so that the config is taken back. Raises ``Refused`` (``NoTrial``)."""
        return await self._decide(ended_by=caller)

    async def _decide(self, *, kept_by: str = "", ended_by: str = "") -> Trial:
        async with self._deciding:
            # It may have ended while the session was read. Under the lock, its end and this decision exclude each
            # other.
            trial = await self._in_time()
            # The first decision counts, also for a client that repeats its request.
            if not trial.kept_by:
                trial = replace(trial, kept_by=kept_by, over=bool(ended_by), ended_by=ended_by)
                await self.store.keep_note(NOTE, to_text(trial))
        self._decided.set()
        return trial

    async def _in_time(self) -> Trial:
        """Return the trial that can be kept now. Raises ``Refused`` (``NoTrial``)."""
        trial = await self._under_way()
        if trial is None:
            raise Refused("no config is on trial", reason=TrialReason.NO_TRIAL)
        if trial.boot_id != self.boot_id():
            # This boot has to show first that the host is well with the config.
            message = f"{trial.config} is verified again after a boot; its trial begins then"
            raise Refused(message, reason=TrialReason.NO_TRIAL)
        if trial.over or (not trial.kept_by and trial.left(self.clock.monotonic()) <= 0):
            raise Refused(f"the trial of {trial.config} is over", reason=TrialReason.NO_TRIAL)
        return trial

    async def _under_way(self) -> Trial | None:
        """Return the stored trial if its update is still to be decided: also while a restarted agent verifies again."""
        trial = from_text(await self.store.note(NOTE))
        if trial is None:
            return None
        try:
            record = await self.store.load()
        except Terminal:
            # A record that cannot be read is held until an operator applies a config, which must remain possible.
            return None
        if trial.update_id != record.update_id or record.phase is not Phase.VERIFYING:
            return None
        return trial if isinstance(record.leg, Apply | Fallback) else None
