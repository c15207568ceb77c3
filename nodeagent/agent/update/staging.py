"""Staging the OS while everything runs: locked, and without a lease before the first write.

Nothing on the running host changes by a staging, so one that fails before the first write leaves no trace, and is tried
again later. While another holder has the lease nothing is staged: the host does not change during a maintenance.
"""

from __future__ import annotations

import asyncio
import contextlib
from enum import Enum
from typing import Any

from nodeagent.agent.update.admission import check_still_held
from nodeagent.agent.update.os_deployments import Os
from nodeagent.agent.update.run import Run
from nodeagent.core.backoff import delays
from nodeagent.core.plan.deployment import Deployment, OsTarget, StageProgress
from nodeagent.core.update.events import EventKind, StepProgress
from nodeagent.core.update.fence_view import FenceEvent
from nodeagent.domains.pull_secret import credentials_of
from nodeagent.errors import Retryable, ServiceUnavailable, Unreachable
from nodeagent.reasons import Reason

__all__ = ["stage_again", "stage_unless_newer"]

STAGE_TRIES = 5
PAUSE_FIRST, PAUSE_CAP = 30.0, 300.0
"""Seconds between two tries of one staging, doubled each time: a registry that is restarted is back by then. What takes
longer ends the phase, and the loop tries again with pauses of its own."""

REPORT_EVERY = 1.0
"""Seconds between two changes of the status that differ in a number only."""


class _Disturbance(Enum):
    NEWER = "a newer desired config"
    HELD = "another holder has the lease"


async def stage_unless_newer(run: Run, os: Os, target: OsTarget) -> bool:
    """Stage before the first write. Return False as soon as another config is desired."""
    reported = ""
    while True:
        if await run.newer():
            return False
        if holder := await _other_holder(run):
            if holder != reported:
                run.narrate(EventKind.WAITING, holder, reason=Reason.LEASE_HELD)
                reported = holder
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(run.policy.lease_retry):
                    await run.wake.wait()
            continue
        reported = ""
        match await _until_disturbed(run, asyncio.create_task(_try(run, os, target))):
            case _Disturbance.NEWER:
                return False
            case _Disturbance.HELD:
                continue
            case Deployment() as staged:
                await _note(run, os, staged)
                return True


async def stage_again(run: Run, os: Os, target: OsTarget) -> None:
    """Stage after the first write. The only ways out are a reboot and a revert, so no newer config ends it."""
    await check_still_held(run.ports, run.update)
    await _note(run, os, await _try(run, os, target))


async def _note(run: Run, os: Os, staged: Deployment) -> None:
    origin = run.record.os.origin or (await os.booted()).id
    run.update.change_os(staged=staged.id, staged_boot_id=run.ports.power.boot_id(), origin=origin)


async def _other_holder(run: Run) -> str:
    try:
        holder = await run.ports.coordination.holder()
    except (Unreachable, Retryable):
        return ""  # a staging disturbs no other holder, and it has cost much by now
    if holder is None or holder.operation == run.record.operation:
        return ""
    return f"{holder.name} holds the lease: {holder.reason}"


async def _until_disturbed(run: Run, work: asyncio.Task[Deployment]) -> Deployment | _Disturbance:
    """Return the result of ``work``, or why it was cancelled before it was done."""
    try:
        while True:
            wake = asyncio.create_task(run.wake.wait())
            watched: set[asyncio.Task[Any]] = {work, wake}
            try:
                await asyncio.wait(watched, timeout=run.policy.lease_retry, return_when=asyncio.FIRST_COMPLETED)
            finally:
                wake.cancel()
                await asyncio.gather(wake, return_exceptions=True)
            if work.done():
                return work.result()
            if await run.newer():
                return _Disturbance.NEWER
            if await _other_holder(run):
                return _Disturbance.HELD
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def _try(run: Run, os: Os, target: OsTarget) -> Deployment:
    pauses = delays(PAUSE_FIRST, PAUSE_CAP)
    report = _ProgressReport(run)
    for _ in range(STAGE_TRIES - 1):
        try:
            return await _stage(run, os, target, report)
        except ServiceUnavailable:
            raise  # the executor waits for it
        except Retryable as error:
            run.narrate(EventKind.WARNING, f"trying again: {error}", reason=error.reason)
            await asyncio.sleep(next(pauses))
    return await _stage(run, os, target, report)


async def _stage(run: Run, os: Os, target: OsTarget, report: _ProgressReport) -> Deployment:
    credentials = credentials_of(run.update.new)
    async with _fenced(run):
        return await os.stage(target, credentials=credentials, replace=run.record.os.staged, tell=report)


def _fenced(run: Run) -> contextlib.AbstractAsyncContextManager[None]:
    def report(event: FenceEvent) -> None:
        if event.etcd_disk:
            run.update.change_os(etcd_disk=event.etcd_disk)
        kind = EventKind.WARNING if event.bad else EventKind.FENCE
        run.narrate(kind, event.message, reason=event.reason, fence=event.view, often=event.often)

    return contextlib.nullcontext() if run.ports.fence is None else run.ports.fence.around(report)


class _ProgressReport:
    """Progress as events. Each task and each tenth of it is worth a line in the journal; the rest is for the status."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._line = ("", -1)
        self._at = 0.0

    def __call__(self, progress: StageProgress) -> None:
        percent = min(100, 100 * progress.done // progress.total) if progress.total else 0
        line, now = (progress.task, percent // 10), self._run.ports.clock.monotonic()
        routine = line == self._line
        if routine and now - self._at < REPORT_EVERY:
            return
        self._line, self._at = line, now
        step = StepProgress(progress.task, progress.done, progress.total, percent)
        self._run.narrate(EventKind.STAGING, progress=step, often=routine, fetched_bytes=progress.fetched)
