# SPDX-License-Identifier: Apache-2.0
"""Views of the events of a step, and of a task of a staging.

Steps have the priority debug, because a config may have hundreds of files. Those that an admin notices have more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from nodeagent.core.syslog import DEBUG, ERROR, INFO
from nodeagent.report.counters import Counters
from nodeagent.report.event_view import EventView
from nodeagent.report.status import Status
from nodeagent.report.views.folding import named, target
from nodeagent.update.ports.events import StagingAdvanced, StepDone, StepEvent, StepFailed, StepSkipped, StepStarted
from nodeagent.update.states import Phase

# The steps that an admin notices, by the beginning of their names. The others write files.
_NOTICEABLE: Final = ("daemon-reload", "stop", "reload", "restart", "reboot")


def _level(event: StepEvent) -> int:
    return INFO if event.step.name.startswith(_NOTICEABLE) else DEBUG


def _stepped(status: Status, event: StepEvent) -> Status:
    # A step that is tried while a service of the host does not answer takes nothing back.
    about = event.about
    stuck = status.phase is Phase.DEGRADED and status.update_id == about.update_id
    return replace(
        named(status, event),
        phase=status.phase if stuck else about.phase,
        update_id=about.update_id,
        target=target(status, about),
        step=event.step,
    )


def _skipped(event: StepSkipped, _status: Status) -> str:
    return f"{event.step.name}: {'skipped' if event.reason else 'not needed'}, {event.message}"


def _staging(event: StagingAdvanced, _status: Status) -> str:
    step = event.step
    return f"staging: {step.name}" + (f" ({step.index}/{step.count})" if step.count else "")


def _fetched(event: StagingAdvanced, _status: Status, counters: Counters) -> None:
    if event.fetched_bytes is not None:
        counters.fetch(event.fetched_bytes)


VIEWS = (
    EventView(
        event=StepStarted,
        id="8f7db9464eb247b288e3ef95b3d68bbc",
        priority=DEBUG,
        sentence=lambda event, _: event.step.name,
        fold=_stepped,
    ),
    EventView(
        event=StepDone,
        id="399aeac730b74c6b9176d3892cb51577",
        priority=DEBUG,
        level=_level,
        sentence=lambda event, _: f"{event.step.name}: done in {event.seconds:.1f} s",
        fields=lambda event, _: {"seconds": round(event.seconds, 3)},
        fold=_stepped,
    ),
    EventView(
        event=StepSkipped,
        id="f03134c78d124a5cb791b72e13fceed5",
        priority=DEBUG,
        level=_level,
        sentence=_skipped,
        fold=_stepped,
    ),
    EventView(
        event=StepFailed,
        id="997f6ee1f2754e11bbf3fd64c55508a3",
        priority=ERROR,
        sentence=lambda event, _: f"{event.step.name} failed: {event.message}",
        fold=_stepped,
    ),
    EventView(
        event=StagingAdvanced,
        id="132f39b47d5040ff83e78b278a068ad2",
        priority=INFO,
        # The status has every sample, and the journal each change.
        level=lambda event: DEBUG if event.routine else INFO,
        sentence=_staging,
        fields=lambda event, _: {"fetched_bytes": event.fetched_bytes},
        fold=_stepped,
        count=_fetched,
    ),
)
