# SPDX-License-Identifier: Apache-2.0
"""What all kinds of steps have in common."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nodeagent.core.plan.steps import DaemonReload, ReloadUnit, RestartUnit
from nodeagent.reasons import Reason
from nodeagent.update.ports.events import StepDone, StepEvent, StepFailed, StepSkipped, StepStarted, Warned
from nodeagent.update.run import Run
from nodeagent.update.steps.step import JOB_REASONS, StepInProgress
from tests.update.test_transitions import begun, plain
from tests.world.run import Host, config

pytestmark = pytest.mark.looptime


async def running() -> tuple[Host, Run]:
    host = await plain()
    update = await begun(host, config("second", {"/etc/x": "1"}))
    run = host.build().executor.attempt(update)
    host.world.events.clear()
    return host, run


def kinds(host: Host) -> list[type]:
    return [type(event) for event in host.world.events]


async def test_a_step_is_counted_and_reports_its_begin_and_its_end() -> None:
    host, run = await running()
    with StepInProgress(run, DaemonReload()) as step:
        step.started()
    assert kinds(host) == [StepStarted, StepDone]
    assert run.update.index == 1


async def test_a_step_that_does_not_start_reports_nothing_and_is_counted() -> None:
    host, run = await running()
    with StepInProgress(run, DaemonReload()):
        pass
    assert (kinds(host), run.update.index) == ([], 1)


async def test_a_step_that_raises_reports_no_end() -> None:
    host, run = await running()
    with pytest.raises(OSError, match="x"), StepInProgress(run, DaemonReload()) as step:
        step.started()
        raise OSError("x")
    assert kinds(host) == [StepStarted]


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (lambda step: step.skipped("nothing to do"), StepSkipped),
        (lambda step: step.failed("it failed", Reason.JOB_FAILED), StepFailed),
        (lambda step: step.tolerated("it did not run before", Reason.JOB_FAILED), Warned),
    ],
)
async def test_a_step_that_ended_otherwise_is_not_done(end: Callable[[StepInProgress], None], kind: type) -> None:
    host, run = await running()
    with StepInProgress(run, DaemonReload()) as step:
        step.started()
        end(step)
    assert kinds(host) == [StepStarted, kind]


async def test_the_events_name_the_step_that_took_the_place_of_the_planned_one() -> None:
    host, run = await running()
    with StepInProgress(run, ReloadUnit("web.service")) as step:
        step.becomes(RestartUnit("web.service"))
        step.started()
    events = [event for event in host.world.events if isinstance(event, StepEvent)]
    assert {event.step.name for event in events} == {"restart web.service"}


def test_the_reasons_of_jobs_are_those_that_are_named_so() -> None:
    assert {reason for reason in Reason if reason.startswith("Job")} == JOB_REASONS
