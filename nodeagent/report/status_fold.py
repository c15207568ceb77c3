# SPDX-License-Identifier: Apache-2.0
"""The events folded into the status, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from nodeagent.core.coordination.maintenance import MaintenanceState
from nodeagent.reasons import Reason
from nodeagent.report.status import Status
from nodeagent.update.ports import events
from nodeagent.update.ports.events import Event, StatusProblem, UpdateContext, UpdateEvent
from nodeagent.update.states import Phase

_UNDRAINED = frozenset({Phase.IDLE, Phase.DEGRADED, Phase.LEASING, Phase.DRAINING})


def fold(status: Status, event: Event) -> Status:
    """Return the status after an event. An event without an update keeps the names of the last one."""
    match event:
        case events.DaemonStarted() | events.DaemonStopped() | events.UpdateFinished():
            return status
        case events.LeaseChanged(holder=holder):
            return replace(status, lease=holder)
        case events.MaintenanceChanged(maintenance=note, waits=waits):
            drains = note is not None and note.state(status.boot_id) is MaintenanceState.DRAINING
            # Remaining pods belong to the current drain. They disappear with its end.
            remaining = status.remaining if drains or status.phase is Phase.DRAINING else None
            return replace(status, maintenance=note, maintenance_waits=waits, remaining=remaining)
        case events.DrainAdvanced():
            return replace(status, remaining=tuple(event.remaining), drain_by=event.deadline, drain_then=event.then)
        case events.EtcdMemberChanged(progress=progress):
            return replace(status, etcd_member=progress)
        case events.DriftChanged(drift=drift):
            return replace(status, drift=tuple(drift))
        case events.FenceChanged(view=view):
            return replace(status, fence=view)
        case events.DeploymentsChanged(deployments=deployments):
            # What was found out about a deployment says nothing about another one that is staged in its place.
            staged = {deployment.id for deployment in deployments if deployment.staged}
            changes = status.os_changes if status.os_changes and status.os_changes.staged in staged else None
            return replace(status, deployments=tuple(deployments), os_changes=changes)
        case events.StagedInspected(changes=changes):
            return replace(status, os_changes=changes)
        case events.BootloaderChecked(check=check):
            return replace(status, bootloader=check)
        case events.DesiredChanged(name=name, digest=digest):
            # Without a desired config the host stays as it is.
            return replace(status, desired=name or status.current, desired_digest=digest)
        case StatusProblem(topic=topic):
            return replace(status, problems=(*_other_problems(status, topic), event))
        case events.ProblemSolved(topic=topic):
            return replace(status, problems=_other_problems(status, topic))
        case events.Warned() | events.UpdateResumed() | events.UpdateCancelled():
            return _named(status, event)
        case events.UpdateDone():
            # A problem with the config was about the previous one.
            current, others = event.about.desired or status.goal, _other_problems(status, "config")
            named = _named(status, event)
            done = replace(named, current=current, current_digest=event.digest, step=None, problems=others)
            return replace(done, partial=None)
        case events.SafePartsApplied(partial=partial):
            return replace(_named(status, event), step=None, partial=partial)
        case events.ConfigRefused():
            since, named = event.about.since or status.since, _named(status, event)
            refused = replace(named, phase=Phase.DEGRADED, since=since, reason=event.reason, message=event.message)
            return replace(refused, step=None, target="", failed_unit=None)
        case events.StepEvent():
            # A step that is tried while a service of the host does not answer takes nothing back.
            about, named = event.about, _named(status, event)
            stuck = status.phase is Phase.DEGRADED and status.update_id == about.update_id
            phase, target = status.phase if stuck else about.phase, _target(status, about)
            return replace(named, phase=phase, update_id=about.update_id, target=target, step=event.step)
        case events.UpdateStarted(actions=actions):
            return _entered(status, event, "", f"plan: {actions}")
        case events.PhaseEntered() | events.CauseEvent():
            return _entered(status, event, event.reason, event.message)
        case _:
            assert_never(event)


def _named(status: Status, event: UpdateEvent) -> Status:
    """Return the status with the names of the event.

    The start of an update, a refusal and ``Degraded`` name the desired config, or the config that is the reason. Other
    events of an update name its target, which may not be desired any more.
    """
    about = event.about
    names = isinstance(event, events.UpdateStarted | events.ConfigRefused | events.HostDegraded)
    desired = (about.desired if names or not about.update_id else "") or status.desired or about.desired
    return replace(
        status,
        current=about.current or status.current,
        desired=desired,
        desired_digest=status.desired_digest if desired == status.desired else "",
        boot_id=about.boot_id or status.boot_id,
        # An event without an update, such as a warning of the cluster, does not know it.
        reboot=about.reboot or (status.reboot if about.phase is status.phase else None),
    )


def _entered(status: Status, event: UpdateEvent, reason: str, message: str) -> Status:
    about = event.about
    same = about.phase is status.phase
    return replace(
        _named(status, event),
        phase=about.phase,
        reason=reason,
        message=message,
        since=about.since or status.since,
        update_id=about.update_id,
        target=_target(status, about),
        step=status.step if same and about.phase in (Phase.WRITING, Phase.ACTING) else None,
        # The pods of an earlier drain say nothing about this one.
        remaining=status.remaining if same and about.phase is Phase.DRAINING else None,
        failed_unit=about.failed_unit if reason else None,
        drained=_drained(status, about.phase),
    )


def _other_problems(status: Status, topic: str) -> Sequence[StatusProblem]:
    return tuple(problem for problem in status.problems if problem.topic != topic)


def _target(status: Status, about: UpdateContext) -> str:
    if about.phase in (Phase.IDLE, Phase.DEGRADED) or not about.update_id:
        return ""
    return about.desired or status.target


def _drained(status: Status, phase: Phase) -> bool:
    """Return whether the node is drained: from the end of a complete drain until its update or maintenance ends."""
    if phase in _UNDRAINED:
        return False
    return status.drained or (status.phase is Phase.DRAINING and status.reason != Reason.DRAIN_TIMED_OUT)
