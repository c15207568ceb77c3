# SPDX-License-Identifier: Apache-2.0
"""The places of the checks in the course of an update.

A required check that fails before a disruption holds the update: that is no verdict on the config. After the config
took effect it is one, unless the check passes within the time for verification. After a revert, checks are reported
only, because the host has no other way back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from nodeagent.errors import AgentError, Refused
from nodeagent.features.checks.decide import AdminCheck, CheckStage, stages_of
from nodeagent.features.checks.reasons import CheckReason
from nodeagent.update.run import Progress, Run, Update
from nodeagent.update.stages.guard import Guard

# Any unit does for the question whether systemd answers.
AGENT: Final = "nodeagent.service"

# Seconds between two attempts of a check that fails after the config took effect.
PERIOD: Final = 5.0


class AdminChecks(Protocol):
    """The checks of this host. A check may run again after a kill, so it must be repeatable."""

    # As in the directories of greenboot, whose wanted checks are reported only.
    async def found(self, stage: CheckStage) -> Sequence[AdminCheck]:
        """Return the checks in the order in which they run: the required ones first.

        Raises ``Refused`` (``CheckUnsafe``) for a program that users other than root could replace.
        """
        ...

    # The node may be out of service while a check runs, so none may hang.
    async def run(self, check: AdminCheck, config: str) -> str:
        """Return why the check failed, with the end of its output, or "" if it passed.

        ``config`` is the name of the config that the host is updated to. Takes at most the time of the settings.
        """
        ...


class CheckGuard(Guard):
    """Each method raises ``Refused`` (``CheckFailed``, ``CheckUnsafe``), and ``ServiceUnavailable`` without systemd."""

    def __init__(self, checks: AdminChecks) -> None:
        self._checks = checks

    async def planned(self, update: Update, *, stops_node: bool) -> Sequence[str]:
        notes = []
        for stage in stages_of(stops_node=stops_node, reboots=update.reboots):
            try:
                checks = await self._checks.found(stage)
            except AgentError as error:
                notes.append(f"checks {stage}: {error.message}")
                continue
            names = [check.name + ("" if check.required else " (wanted)") for check in checks]
            if names:
                notes.append(f"checks {stage}: {', '.join(names)}")
        return notes

    async def permit(self, run: Run) -> None:
        await self._before(run, CheckStage.BEFORE_DRAIN)

    async def permit_fallback(self, run: Run) -> None:
        await self._before(run, CheckStage.BEFORE_DRAIN)

    async def permit_reboot(self, run: Run) -> None:
        await self._before(run, CheckStage.BEFORE_REBOOT)

    async def verify(self, run: Run, progress: Progress) -> None:
        clock = run.ports.clock.monotonic
        deadline = clock() + run.policy.verify_timeout
        stages = (CheckStage.AFTER_BOOT, CheckStage.AFTER_APPLY)
        for stage in stages if run.record.written.boots else stages[1:]:
            try:
                checks = await self._checks.found(stage)
            except AgentError as error:
                if not run.record.reverting:
                    raise
                run.report_failure(stage, error.message, CheckReason.CHECK_UNSAFE)
                continue
            for check in checks:
                run.update.progressed()
                progress(f"running the check {check.id}", deadline)
                while failure := await self._failure(run, check):
                    run.update.progressed()
                    if run.record.reverting or not check.required:
                        run.report_failure(check.id, failure, CheckReason.CHECK_FAILED)
                        break
                    # After the config took effect, a check has the time of a slow service before it is a verdict.
                    if clock() >= deadline:
                        raise failed_check(check, failure)
                    progress(f"{failure}; it is repeated", deadline)
                    await asyncio.sleep(PERIOD)

    async def _before(self, run: Run, stage: CheckStage) -> None:
        """Run the checks of a stage before a disruption."""
        try:
            checks = await self._checks.found(stage)
        except Refused as error:
            if not run.record.reverting:
                raise
            run.report_failure(stage, error.message, CheckReason.CHECK_UNSAFE)
            return
        for check in checks:
            run.show(f"running the check {check.id}")
            if not (failure := await self._failure(run, check)):
                continue
            if check.required and not run.record.reverting:
                raise failed_check(check, failure)
            run.report_failure(check.id, failure, CheckReason.CHECK_FAILED)

    async def _failure(self, run: Run, check: AdminCheck) -> str:
        """Return why a check failed, "" if it passed.

        systemd starts the checks, so a failure counts only while systemd answers. Raises ``ServiceUnavailable`` if it
        does not: that is no verdict on the config.
        """
        if failure := await self._checks.run(check, run.record.to_name):
            await run.ports.units.state(AGENT)
        return failure


def failed_check(check: AdminCheck, message: str) -> Refused:
    """Return the error of a required check that failed. A reboot may help."""
    error = Refused(message, reason=CheckReason.CHECK_FAILED)
    error.subject, error.curable = check.id, True
    return error
