# SPDX-License-Identifier: Apache-2.0
"""Views of the events of deployments."""

from __future__ import annotations

from dataclasses import replace

from nodeagent.core.plan.deployment import Deployment
from nodeagent.core.plan.os_changes import summary
from nodeagent.core.syslog import INFO, NOTICE
from nodeagent.report.event_view import EventView
from nodeagent.report.status import Status
from nodeagent.update.ports.events import DeploymentsChanged, DeploymentsServed, StagedInspected


def _changed(status: Status, event: DeploymentsChanged) -> Status:
    # What was found out about a deployment says nothing about another one that is staged in its place.
    staged = {deployment.id for deployment in event.deployments if deployment.staged}
    changes = status.os_changes if status.os_changes and status.os_changes.staged in staged else None
    return replace(status, deployments=tuple(event.deployments), os_changes=changes)


def _words(deployment: Deployment) -> str:
    name = deployment.version or deployment.digest or deployment.checksum
    marks = [word for word, is_so in (("booted", deployment.booted), ("staged", deployment.staged)) if is_so]
    return f"{name} ({', '.join(marks)})" if marks else name


VIEWS = (
    EventView(
        event=DeploymentsChanged,
        id="81a26c07e5c84efc8f1aeabc4df03a1f",
        priority=INFO,
        sentence=lambda event, _: "deployments, in boot order: " + "; ".join(map(_words, event.deployments)),
        fold=_changed,
    ),
    EventView(
        event=DeploymentsServed,
        id="1e00ba4b12014e10b3d7f183c97cf7da",
        priority=NOTICE,
        sentence=lambda event, _: f"{event.by} serves the deployments from now on: {event.before} cannot any more",
    ),
    EventView(
        event=StagedInspected,
        id="9ac52fbc6b0147978adddcfa56b2ac37",
        priority=INFO,
        sentence=lambda event, _: f"the staged deployment {event.changes.staged}: {summary(event.changes)}",
        fold=lambda status, event: replace(status, os_changes=event.changes),
    ),
)
