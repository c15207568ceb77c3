# SPDX-License-Identifier: Apache-2.0
"""Stage the OS while all services run: locked, and without a lease before the first write.

A staging does not change the running host, so a failure before the first write leaves no trace and is tried again
later. While another holder has the lease, nothing is staged: the host does not change during a maintenance.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial

from nodeagent.core.config.file_tree import expand
from nodeagent.core.plan.deployment import Deployment, OsTarget, StageProgress
from nodeagent.core.plan.os_changes import summary
from nodeagent.domains.tables import credentials_of
from nodeagent.errors import AgentError, Retryable, Unreconcilable
from nodeagent.reasons import Reason
from nodeagent.tasks import finished_before, running
from nodeagent.update.ports.events import PhaseEntered, StagingAdvanced, StepProgress, UpdateWaiting, Warned
from nodeagent.update.ports.system import StagingUnit
from nodeagent.update.run import Run
from nodeagent.update.stages.admission import (
    acquire_staging_slot,
    check_free,
    check_still_held,
    check_target,
    release_staging_slot,
)
from nodeagent.update.stages.after_boot import before_staging_again
from nodeagent.update.stages.fallback import begin_planned
from nodeagent.update.stages.os_deployments import HostDeployments, discard_own
from nodeagent.update.states import Phase, Superseded, Transition
from nodeagent.update.wait import REGISTRY, retry, retry_on_outage

# Seconds between two changes of the status that differ in a number only.
REPORT_EVERY = 1.0


async def do(run: Run) -> Transition:
    """Stage the deployment, and let the guards check it."""
    os, target = deployments(run)
    # The slot limits how many nodes load the registry at once. It is not needed after the staging.
    await acquire_staging_slot(run)
    try:
        staged = await stage_unless_newer(run, os, target)
    except AgentError:
        # Other nodes may stage during the pauses of this one.
        await release_staging_slot(run)
        raise
    await release_staging_slot(run)
    if not staged:
        raise Superseded
    for guard in run.ports.guards:
        await guard.check_staged(run)
    return Transition(Phase.LEASING)


async def undo(run: Run) -> None:
    """Discard the staged deployment, which would otherwise boot with the next reboot of the host."""
    if run.ports.os is None or run.update.target is None:
        return
    try:
        await discard_own(run.ports.os, run.record)
        run.update.change_os(target=None, staged="", staged_boot_id="")
    except AgentError as error:
        # The record still names the deployment, and the loop discards it later.
        run.narrate(Warned, str(error), reason=error.reason)


async def again(run: Run) -> Transition:
    """Stage after the first write, where the staged deployment was lost."""
    os, target = deployments(run)
    # An attempt without an answer of the service was not an attempt to stage.
    # The count limits stagings that a power cut ends.
    if not run.update.repeated:
        await before_staging_again(run)
    await _stage_again(run, os, target)
    return await begin_planned(run)


def deployments(run: Run) -> tuple[HostDeployments, OsTarget]:
    os, target = run.ports.os, run.update.target
    if os is None or target is None:
        raise Unreconcilable("the deployments of this host cannot be reached any more", reason=Reason.NO_DEPLOYMENTS)
    return os, target


async def stage_unless_newer(run: Run, os: HostDeployments, target: OsTarget) -> bool:
    """Stage before the first write. Return False as soon as another config is desired.

    Raise ``NotNow`` as soon as another holder has the lease.
    """
    if await run.newer():
        return False
    await check_free(run)
    # The block cancels the staging at its end, also if another holder takes the lease.
    async with running(_staged(run, os, target)) as work:
        while not await finished_before(work, run.wake, timeout=run.policy.lease_retry):
            if await run.newer():
                return False
            await check_free(run)
        await _note(run, os, work.result())
    # Only now the version of the image is known for certain. Without an answer, the staged deployment waits.
    with retry_on_outage():
        await check_target(run.ports, run.update, staged=True)
    return True


async def _stage_again(run: Run, os: HostDeployments, target: OsTarget) -> None:
    """Stage after the first write. A newer config does not end it, because only a reboot or a revert can follow."""
    await check_still_held(run)
    await _note(run, os, await _staged(run, os, target))


async def _note(run: Run, os: HostDeployments, staged: Deployment) -> None:
    # A staging that is repeated in a later boot must not take another deployment for the origin.
    origin = run.record.os.origin or (await os.booted()).id
    run.update.change_os(staged=staged.id, staged_boot_id=run.ports.power.boot_id(), origin=origin)
    changes = await os.inspect(expand(run.update.new))
    run.update.change_os(summary=summary(changes) if changes is not None else "")


async def _staged(run: Run, os: HostDeployments, target: OsTarget) -> Deployment:
    report = _ProgressReport(run)
    return await retry(run, partial(_stage_once, run, os, target, report), REGISTRY, report.failed)


async def _stage_once(run: Run, os: HostDeployments, target: OsTarget, report: _ProgressReport) -> Deployment:
    credentials = credentials_of(run.update.new)
    if (preparation := await os.port.preparation(target)) is not None:
        report(StageProgress(preparation.task))
        async with _around(run, preparation.unit):
            await preparation.run(credentials)
    async with _around(run, os.port.staging_unit):
        return await os.stage(target, credentials=credentials, replace=run.record.os.staged, on_progress=report)


@contextlib.asynccontextmanager
async def _around(run: Run, unit: StagingUnit) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        for guard in run.ports.guards:
            await stack.enter_async_context(guard.around_staging(run, unit))
        yield


class _ProgressReport:
    """Reports progress as events. Each task and each tenth of it is a line of the journal; the status has the rest.

    The fault of an attempt stays in the status until a later attempt has done something, or is at another task.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._line = ("", -1)
        self._at = 0.0
        self._tasks = set[str]()
        self._has_failed = False

    def failed(self, error: Retryable, seconds: float) -> None:
        """Report why an attempt failed, and that the next one is in ``seconds``."""
        self._has_failed = True
        self._run.narrate(UpdateWaiting, f"trying again in {seconds:.0f} s: {error}", error.reason)

    def __call__(self, progress: StageProgress) -> None:
        if self._has_failed and (progress.done or progress.task not in self._tasks):
            self._has_failed = False
            self._run.narrate(PhaseEntered, self._run.record.message, self._run.record.reason)
            # The status has lost the task with the fault.
            self._line = ("", -1)
        self._tasks.add(progress.task)
        percent = min(100, 100 * progress.done // progress.total) if progress.total else 0
        line, now = (progress.task, percent // 10), self._run.ports.clock.monotonic()
        routine = line == self._line
        if routine and now - self._at < REPORT_EVERY:
            return
        self._line, self._at = line, now
        step = StepProgress(progress.task, progress.done, progress.total, percent)
        self._run.narrate(StagingAdvanced, step, progress.fetched, routine)
