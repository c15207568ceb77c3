"""Staging the OS while everything runs: locked, without a lease, and given up at once for a newer desired config.

Nothing on the running host changes by it, so a failure here leaves nothing behind that somebody would notice, and the
same is tried again later. While somebody else holds the lease nothing is staged: who maintains a host does not want it
to change under his hands.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from enum import Enum
from typing import Any

from nodeagent.agent.update.admission import check_still_held
from nodeagent.agent.update.os_deployments import Os
from nodeagent.agent.update.run import Limits, Ports, Update, narrate
from nodeagent.core.backoff import delays
from nodeagent.core.plan.deployment import Deployment, OsTarget, StageProgress
from nodeagent.core.update.events import EventKind, StepProgress
from nodeagent.core.update.fence_view import FenceEvent
from nodeagent.domains.pull_secret import credentials_of
from nodeagent.errors import Retryable, ServiceUnavailable, Unreachable

__all__ = ["stage"]

STAGE_TRIES = 5
PAUSE_FIRST, PAUSE_CAP = 30.0, 300.0
"""Seconds between two tries of one staging, doubled each time: a registry that is restarted is back by then. What takes
longer ends the phase, and the loop tries again with pauses of its own."""

TELL_EVERY = 1.0
"""Seconds between two changes of the status that say nothing but a number."""


class _Disturbance(Enum):
    NEWER = "a newer desired config"
    HELD = "somebody else holds the lease"


async def stage(
    ports: Ports,
    limits: Limits,
    update: Update,
    os: Os,
    target: OsTarget,
    *,
    look: asyncio.Event,
    newer: Callable[[], Awaitable[bool]],
) -> bool:
    """True when it is staged, and in the update's record. False when ``newer`` says so; ``look`` wakes us to ask it.
    Neither counts once files were written: then the way leads forward or back, but not to a third config."""
    told = ""
    while True:
        free = not update.record.acted
        if free and await newer():
            return False
        if free and (who := await _held(ports, update)):
            if who != told:
                narrate(ports, update, EventKind.WAITING, who, reason="LeaseHeld")
                told = who
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limits.lease_retry):
                    await look.wait()
            continue
        told = ""
        if not free:
            await check_still_held(ports, update)
        work = asyncio.create_task(_try(ports, update, os, target))
        match await _until_disturbed(ports, limits, update, work, look, newer):
            case _Disturbance.NEWER:
                return False
            case _Disturbance.HELD:
                continue
            case Deployment() as staged:
                origin = update.record.os_from or (await os.booted()).id
                boot_id = ports.power.boot_id()
                update.record = replace(update.record, staged=staged.id, staged_boot=boot_id, os_from=origin)
                return True


async def _held(ports: Ports, update: Update) -> str:
    try:
        holder = await ports.coordination.holder()
    except (Unreachable, Retryable):
        return ""  # nobody notices a staging, and it has cost much by now; the lease itself is not taken unseen
    if holder is None or holder.operation == update.record.operation:
        return ""
    return f"{holder.name} holds the lease: {holder.reason}"


async def _until_disturbed(
    ports: Ports,
    limits: Limits,
    update: Update,
    work: asyncio.Task[Deployment],
    look: asyncio.Event,
    newer: Callable[[], Awaitable[bool]],
) -> Deployment | _Disturbance:
    """What ``work`` gives, or why it was cancelled before it was done."""
    try:
        while True:
            wake = asyncio.create_task(look.wait())
            watched: set[asyncio.Task[Any]] = {work} if update.record.acted else {work, wake}
            try:
                await asyncio.wait(watched, timeout=limits.lease_retry, return_when=asyncio.FIRST_COMPLETED)
            finally:
                wake.cancel()
                await asyncio.gather(wake, return_exceptions=True)
            if work.done():
                return work.result()
            if update.record.acted:
                continue
            if await newer():
                return _Disturbance.NEWER
            if await _held(ports, update):
                return _Disturbance.HELD
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def _try(ports: Ports, update: Update, os: Os, target: OsTarget) -> Deployment:
    pauses = delays(PAUSE_FIRST, PAUSE_CAP)
    teller = _Teller(ports, update)
    credentials = credentials_of(update.new)
    for _ in range(STAGE_TRIES - 1):
        try:
            async with _fenced(ports, update):
                return await os.stage(target, credentials=credentials, replace=update.record.staged, tell=teller)
        except ServiceUnavailable:
            raise  # the executor waits for it
        except Retryable as error:
            narrate(ports, update, EventKind.WARNING, f"trying again: {error}", reason=error.reason)
            await asyncio.sleep(next(pauses))
    async with _fenced(ports, update):
        return await os.stage(target, credentials=credentials, replace=update.record.staged, tell=teller)


def _fenced(ports: Ports, update: Update) -> contextlib.AbstractAsyncContextManager[None]:
    def tell(told: FenceEvent) -> None:
        kind = EventKind.WARNING if told.bad else EventKind.FENCE
        narrate(ports, update, kind, told.message, reason=told.reason, fence=told.view, often=told.often)

    return contextlib.nullcontext() if ports.fence is None else ports.fence.around(tell)


class _Teller:
    """Progress as events: each task and each tenth of it is worth a line, the rest is for who watches."""

    def __init__(self, ports: Ports, update: Update) -> None:
        self._ports = ports
        self._update = update
        self._line = ("", -1)
        self._at = 0.0

    def __call__(self, progress: StageProgress) -> None:
        percent = min(100, 100 * progress.done // progress.total) if progress.total else 0
        line, now = (progress.task, percent // 10), self._ports.clock.monotonic()
        often = line == self._line
        if often and now - self._at < TELL_EVERY:
            return
        self._line, self._at = line, now
        step = StepProgress(progress.task, progress.done, progress.total, percent)
        fetched = progress.fetched
        narrate(self._ports, self._update, EventKind.STAGING, progress=step, often=often, fetched_bytes=fetched)
