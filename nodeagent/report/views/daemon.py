# SPDX-License-Identifier: Apache-2.0
"""Views of the events of the daemon: its start and end, the desired config, the lease, and problems of the status."""

from __future__ import annotations

from dataclasses import replace

from nodeagent.core.syslog import DEBUG, INFO, NOTICE, WARNING
from nodeagent.report.event_view import EventView
from nodeagent.report.status import Status
from nodeagent.report.views.folding import named, other_problems
from nodeagent.update.ports.events import (
    DaemonStarted,
    DaemonStopped,
    DesiredChanged,
    LeaseChanged,
    ProblemSolved,
    StatusProblem,
    Warned,
)

# Problems of the status have the MESSAGE_ID of warnings: their reason is which problem it is.
_WARNING_ID = "f2013b7ddb1445d9bee43aca7d55ead9"


def _desired(status: Status, event: DesiredChanged) -> Status:
    # Without a desired config the host stays as it is.
    return replace(status, desired=event.name or status.current, desired_digest=event.digest)


def _problem(status: Status, event: StatusProblem) -> Status:
    return replace(status, problems=(*other_problems(status, event.topic), event))


def _lease_words(event: LeaseChanged, _status: Status) -> str:
    return f"lease: {event.holder.name} ({event.holder.reason})" if event.holder else "lease: free"


VIEWS = (
    EventView(
        event=DaemonStarted,
        id="4d719cbf3d894b9eae529af2751a15f7",
        priority=INFO,
        sentence=lambda event, status: (
            f"nodeagent {event.version} started, current config is {status.current or 'none'}"
        ),
    ),
    EventView(
        event=DaemonStopped,
        id="1f0ec54253e34d9ea875945da0b0b4e7",
        priority=INFO,
        sentence=lambda _event, _status: "stopped",
    ),
    EventView(
        event=DesiredChanged,
        id="a9db8293ee4544db8b61349e12921114",
        priority=INFO,
        sentence=lambda event, _: f"{event.name} is the desired config" if event.name else "no config is desired",
        fields=lambda event, _: {"desired": event.name, "digest": event.digest},
        fold=_desired,
    ),
    EventView(
        event=LeaseChanged,
        id="8ccbe317b58047e6986ec90cb87ede20",
        priority=INFO,
        level=lambda event: DEBUG if event.renewed else INFO,
        sentence=_lease_words,
        fold=lambda status, event: replace(status, lease=event.holder),
    ),
    EventView(
        event=Warned,
        id=_WARNING_ID,
        priority=WARNING,
        sentence=lambda event, _: event.message,
        fold=named,
    ),
    EventView(
        event=StatusProblem,
        id=_WARNING_ID,
        priority=WARNING,
        sentence=lambda event, _: event.message,
        fold=_problem,
    ),
    EventView(
        event=ProblemSolved,
        id=_WARNING_ID,
        priority=NOTICE,
        sentence=lambda event, _: event.message,
        fields=lambda _event, _status: {"solved": 1},
        fold=lambda status, event: replace(status, problems=other_problems(status, event.topic)),
    ),
)
