# SPDX-License-Identifier: Apache-2.0
"""Run the checks of the admin at their places in an update.

A required check that fails before a disruption holds the update: that is no verdict on the config. After the config
took effect it is one, unless the check passes within the time for verification. After a revert, checks are reported
only, because the host has no other way back.
"""

from __future__ import annotations

import asyncio
from typing import Final

from nodeagent.core.check_stage import CheckStage
from nodeagent.errors import AgentError, Refused
from nodeagent.reasons import Reason
from nodeagent.update.ports.checks import AdminCheck, AdminChecks
from nodeagent.update.ports.events import PhaseEntered
from nodeagent.update.run import Progress, Run

# Any unit does for the question whether systemd answers.
AGENT: Final = "nodeagent.service"

# Seconds between two attempts of a check that fails after the config took effect.
PERIOD: Final = 5.0


def failed_check(check: AdminCheck, message: str) -> Refused:
    """Return the error of a required check that failed. A reboot may help."""
    error = Refused(message, reason=Reason.CHECK_FAILED)
    error.subject, error.curable = check.id, True
    return error


def stages_of(*, stops_node: bool, reboots: bool) -> tuple[CheckStage, ...]:
    """Return the stages of an update, in order. ``stops_node``: it drains or stops the node."""
    before = (CheckStage.BEFORE_DRAIN,) if stops_node else ()
    boots = (CheckStage.BEFORE_REBOOT, CheckStage.AFTER_BOOT) if reboots else ()
    return (*before, *boots, CheckStage.AFTER_APPLY)


async def check_before(run: Run, stage: CheckStage) -> None:
    """Run the checks of a stage before a disruption.

    Raises ``Refused`` (``CheckFailed``, ``CheckUnsafe``), and ``ServiceUnavailable`` without systemd.
    """
    if (checks := run.ports.checks) is None:
        return
    try:
        checks_of_stage = await checks.found(stage)
    except Refused as error:
        if not run.record.reverting:
            raise
        run.report_failure(stage, error.message, Reason.CHECK_UNSAFE)
        return
    for check in checks_of_stage:
        # Once for each update: a check that is repeated must not hide what the update waits for.
        if check.id not in run.update.checks_shown:
            run.update.checks_shown.add(check.id)
            run.narrate(PhaseEntered, f"running the check {check.id}")
        if not (failure := await _failure(run, checks, check)):
            continue
        if check.required and not run.record.reverting:
            raise failed_check(check, failure)
        run.report_failure(check.id, failure, Reason.CHECK_FAILED)


async def verify(run: Run, progress: Progress) -> None:
    """Run the checks after a reboot of this update, if it had one, and those after each update.

    Raises ``Refused`` (``CheckFailed``, ``CheckUnsafe``), and ``ServiceUnavailable`` without systemd.
    """
    if (checks := run.ports.checks) is None:
        return
    clock = run.ports.clock.monotonic
    deadline = clock() + run.policy.verify_timeout
    stages = (CheckStage.AFTER_BOOT, CheckStage.AFTER_APPLY)
    for stage in stages if run.record.written.boots else stages[1:]:
        try:
            checks_of_stage = await checks.found(stage)
        except AgentError as error:
            if not run.record.reverting:
                raise
            run.report_failure(stage, error.message, Reason.CHECK_UNSAFE)
            continue
        for check in checks_of_stage:
            run.update.progressed()
            progress(f"running the check {check.id}", deadline)
            while failure := await _failure(run, checks, check):
                run.update.progressed()
                if run.record.reverting or not check.required:
                    run.report_failure(check.id, failure, Reason.CHECK_FAILED)
                    break
                # After the config took effect, a check has the time of a slow service before it is a verdict.
                if clock() >= deadline:
                    raise failed_check(check, failure)
                progress(f"{failure}; it is repeated", deadline)
                await asyncio.sleep(PERIOD)


async def _failure(run: Run, checks: AdminChecks, check: AdminCheck) -> str:
    """Return why a check failed, "" if it passed.

    systemd starts the checks, so a failure counts only while systemd answers. Raises ``ServiceUnavailable`` if it does
    not: that is no verdict on the config.
    """
    if failure := await checks.run(check, run.record.to_name):
        await run.ports.units.state(AGENT)
    return failure
