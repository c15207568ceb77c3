"""The status: the events so far, folded into one object of the contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, assert_never

from nodeagent.core.boot import kernel_boot, soft_reboots
from nodeagent.core.coordination.drain import Remaining, is_blocked, remedy
from nodeagent.core.coordination.maintenance import MAINTENANCE, Maintenance, MaintenanceState, is_maintenance
from nodeagent.core.plan.deployment import Deployment
from nodeagent.core.plan.os_changes import OsChanges, os_changes_to_dict
from nodeagent.core.update import events
from nodeagent.core.update.drift import Drift, describe_drift
from nodeagent.core.update.events import Event, StatusProblem, StepProgress, UpdateContext, UpdateEvent
from nodeagent.core.update.fence_view import FenceView, fence_to_dict
from nodeagent.core.update.lasting import Partial
from nodeagent.core.update.phase import Phase
from nodeagent.core.update.ports.coordination import Holder
from nodeagent.core.update.record import FailedUnit
from nodeagent.reasons import Reason, documentation

__all__ = ["SCHEMA", "Status", "fold", "line", "status_to_dict"]

SCHEMA = "nodeagent/status/v1"

_UNDRAINED = frozenset({Phase.IDLE, Phase.DEGRADED, Phase.LEASING, Phase.DRAINING})


@dataclass(frozen=True, slots=True)
class Status:
    phase: Phase = Phase.IDLE
    reason: str = ""
    message: str = ""
    since: str = ""
    current: str = ""
    desired: str = ""
    # Empty until the daemon has read the store.
    current_digest: str = ""
    desired_digest: str = ""
    # Name of the config of the update under way, which need not be the desired one.
    target: str = ""
    # The identity of the boot, see core.boot.
    boot_id: str = ""
    update_id: str = ""
    step: StepProgress | None = None
    backend: str = "local"
    lease: Holder | None = None
    deployments: Sequence[Deployment] = ()
    # None without a staged deployment, or before it was compared with the booted one.
    os_changes: OsChanges | None = None
    fence: FenceView | None = None
    # Remaining pods; None without a drain.
    remaining: Sequence[Remaining] | None = None
    # When the drain is given up; RFC 3339.
    drain_by: str = ""
    # What follows after the deadline, as text.
    drain_then: str = ""
    # Whether the node was drained for the current update.
    drained: bool = False
    maintenance: Maintenance | None = None
    # Cause of the wait, as "REASON: message".
    maintenance_waits: str = ""
    drift: Drift = ()
    # The safe parts of the desired config that are applied, and what waits.
    partial: Partial | None = None
    etcd_member: events.MemberProgress | None = None
    problems: Sequence[StatusProblem] = ()
    # The unit that ``reason`` is about.
    failed_unit: FailedUnit | None = None

    @property
    def goal(self) -> str:
        """The config that the current update applies, or the desired one."""
        return self.target or self.desired

    @property
    def reboot_required(self) -> bool:
        """Whether the host is about to reboot, or a staged deployment or an update waits for a reboot by an admin."""
        asked = self.phase is Phase.REBOOTING or self.reason == Reason.REBOOT_REQUIRED
        return asked or any(found.staged and not found.locked for found in self.deployments)


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
            staged = {found.id for found in deployments if found.staged}
            changes = status.os_changes if status.os_changes and status.os_changes.staged in staged else None
            return replace(status, deployments=tuple(deployments), os_changes=changes)
        case events.StagedInspected(changes=changes):
            return replace(status, os_changes=changes)
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


def line(status: Status) -> str:
    """Return the line of ``STATUS=``, which ``systemctl status`` shows."""
    parts = [str(status.phase)]
    if status.step is not None:
        parts.append(
            f"{status.step.name} ({status.step.index}/{status.step.count})" if status.step.count else status.step.name
        )
    if status.reason:
        parts.append(status.reason)
    if status.message:
        parts.append(status.message)
    elif status.phase is Phase.IDLE and status.current:
        parts.append(f"current config is {status.current}")
    if status.maintenance is not None:
        parts.append(f"maintenance {status.maintenance.state(status.boot_id)}, {status.maintenance.words}")
    if status.partial is not None:
        count, name = len(status.partial.waits), status.partial.name
        parts.append(f"{count} changes of {name} wait" if count > 1 else f"1 change of {name} waits")
    if status.drift:
        parts.append(f"drift: {describe_drift(status.drift)}")
    if status.problems:
        parts.append("problem: " + "; ".join(f"{found.reason}: {found.message}" for found in status.problems))
    # systemd drops a notification of more than 4096 bytes, and a character has up to four.
    return ": ".join(parts)[:1000]


def _maintenance(status: Status) -> Mapping[str, Any] | None:
    """Return the maintenance as JSON data. ``state`` is a ``MaintenanceState``; ``message`` is what it waits for."""
    note = status.maintenance
    if note is None:
        return None
    return {
        "id": note.id,
        "state": str(note.state(status.boot_id)),
        "requester": note.requester,
        "reason": note.reason,
        "since": note.began or note.since,
        "until": note.until,
        "drain": note.drain,
        "drained": note.drained,
        "power_off": note.power_off,
        "message": status.maintenance_waits or note.problem or note.ended,
    }


def _drain(status: Status) -> Mapping[str, Any] | None:
    """Return the drain as JSON data: requester, reason, times, and remaining pods, blocked ones first."""
    if status.remaining is None:
        return None
    note = status.maintenance if status.phase is not Phase.DRAINING else None
    pods = sorted(status.remaining, key=lambda pod: not is_blocked(pod))
    return {
        "requester": note.requester if note is not None else "nodeagent",
        "reason": note.reason if note is not None else f"update to {status.goal}",
        "since": (note.began if note is not None else status.since),
        "deadline": status.drain_by,
        "then": status.drain_then,
        "remaining": [_remaining(pod) for pod in pods],
    }


def _remaining(pod: Remaining) -> Mapping[str, Any]:
    about = {"namespace": pod.namespace, "name": pod.name, "why": pod.why}
    return {**about, "blocked": is_blocked(pod), "hint": remedy(pod)}


def _partial(partial: Partial | None) -> Mapping[str, Any] | None:
    """Return the blocked config as JSON data: what of it is applied, and what the rest waits for."""
    if partial is None:
        return None
    reason, _, message = partial.why.partition(": ")
    return {
        "config": partial.name,
        "digest": partial.desired,
        "since": partial.since,
        "reason": reason,
        "message": message,
        "applied": list(partial.applied),
        "waits": [{"change": change, "for": why} for change, why in partial.waits],
    }


def status_to_dict(status: Status, *, daemon: str) -> dict[str, Any]:
    """Return the ``nodeagent/status/v1`` object of the contract."""
    step: Mapping[str, Any] | None = None
    if status.step is not None:
        step = {
            "name": status.step.name,
            "index": status.step.index,
            "count": status.step.count,
            "percent": status.step.percent,
        }
    lease: Mapping[str, Any] | None = None
    if status.lease is not None:
        lease = {
            "backend": status.backend,
            "holder": status.lease.name,
            "operation": MAINTENANCE if is_maintenance(status.lease.operation) else status.lease.operation,
            "reason": status.lease.reason,
            "since": status.lease.since,
            "expires": status.lease.expires,
        }
    return {
        "schema": SCHEMA,
        "phase": str(status.phase),
        "reason": status.reason,
        "message": status.message,
        "documentation": documentation(status.reason),
        "since": status.since,
        "current": status.current,
        "desired": status.desired,
        "current_digest": status.current_digest,
        "desired_digest": status.desired_digest,
        "target": status.target,
        "boot_id": kernel_boot(status.boot_id),
        "soft_reboots": soft_reboots(status.boot_id),
        "update_id": status.update_id,
        "step": step,
        "deployments": [
            {
                "checksum": found.checksum,
                "version": found.version,
                "booted": found.booted,
                "staged": found.staged,
                "locked": found.locked,
                "digest": found.digest,
            }
            for found in status.deployments
        ],
        "os_changes": None if status.os_changes is None else os_changes_to_dict(status.os_changes),
        "lease": lease,
        "drain": _drain(status),
        "fence": None if status.fence is None else fence_to_dict(status.fence),
        "maintenance": _maintenance(status),
        "drift": [asdict(found) for found in status.drift],
        "partial": _partial(status.partial),
        "etcd_member": None if status.etcd_member is None else asdict(status.etcd_member),
        "failed_unit": None if status.failed_unit is None else asdict(status.failed_unit),
        "problems": [asdict(problem) for problem in status.problems],
        "daemon": daemon,
    }
