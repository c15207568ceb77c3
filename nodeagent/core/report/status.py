"""The status: the events so far, folded into one object of the contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from nodeagent.core.boot import kernel_boot, soft_reboots
from nodeagent.core.coordination.drain import Remaining, is_blocked, remedy
from nodeagent.core.coordination.maintenance import MAINTENANCE, Maintenance, MaintenanceState, is_maintenance
from nodeagent.core.hints import documentation
from nodeagent.core.plan.deployment import Deployment
from nodeagent.core.update.events import Event, EventKind, StepProgress
from nodeagent.core.update.fence_view import FenceView, fence_to_dict
from nodeagent.core.update.phase import Phase
from nodeagent.core.update.ports.coordination import Holder
from nodeagent.reasons import Reason

__all__ = ["SCHEMA", "Status", "StatusProblem", "fold", "line", "status_to_dict"]

SCHEMA = "nodeagent/status/v1"

# Kinds that say something but do not change where we are.
_PASSING = frozenset({EventKind.WARNING, EventKind.LEASE, EventKind.STARTED, EventKind.STOPPED, EventKind.RESUMED})
# Kinds that name the desired config, or, if the host is degraded, the one that is the reason. Others of an update name
# its target, which may not be desired any more.
_NAMES_DESIRED = frozenset({EventKind.UPDATE_STARTED, EventKind.REFUSED, EventKind.DEGRADED})
_UNDRAINED = frozenset({Phase.IDLE, Phase.DEGRADED, Phase.LEASING, Phase.DRAINING})
_WITH_STEP = frozenset(
    {
        EventKind.STEP_STARTED,
        EventKind.STEP_DONE,
        EventKind.STEP_SKIPPED,
        EventKind.STEP_FAILED,
        EventKind.STAGING,
    }
)


@dataclass(frozen=True, slots=True)
class StatusProblem:
    """A problem that does not stop the agent and that an admin must fix. There is one for each ``topic``."""

    topic: str  # settings, policy, store, config, sweep
    reason: str  # "" removes the problem of this topic
    message: str


@dataclass(frozen=True, slots=True)
class Status:
    phase: Phase = Phase.IDLE
    reason: str = ""
    message: str = ""
    since: str = ""
    current: str = ""
    desired: str = ""
    current_digest: str = ""  # "" until the daemon has read it
    desired_digest: str = ""
    target: str = ""  # name of the config of the update under way, which need not be the desired one
    boot_id: str = ""  # the identity of the boot, see core.boot
    update_id: str = ""
    step: StepProgress | None = None
    backend: str = "local"
    lease: Holder | None = None
    deployments: Sequence[Deployment] = ()
    fence: FenceView | None = None
    remaining: Sequence[Remaining] | None = None  # of the drain; None while there is none
    drain_by: str = ""  # when the drain is given up; RFC 3339
    drain_then: str = ""  # what follows then, for people
    drained: bool = False  # for the update that is under way
    maintenance: Maintenance | None = None
    maintenance_waits: str = ""  # for whom or what, as REASON: words
    problems: Sequence[StatusProblem] = ()

    @property
    def goal(self) -> str:
        """The config that the current update applies, or the desired one."""
        return self.target or self.desired


def fold(status: Status, event: Event) -> Status:
    """Return the status after an event. An event without an update keeps the names of the last one."""
    if event.kind is EventKind.LEASE:
        return replace(status, lease=event.fields.get("holder"))
    if event.kind is EventKind.MAINTENANCE:
        waits = str(event.fields.get("waits", ""))
        note: Maintenance | None = event.fields.get("maintenance")
        drains = note is not None and note.state(status.boot_id) is MaintenanceState.DRAINING
        remaining = status.remaining if drains or status.phase is Phase.DRAINING else None
        return replace(status, maintenance=note, maintenance_waits=waits, remaining=remaining)
    if event.kind is EventKind.DRAIN:
        by, then = (str(event.fields.get(name, "")) for name in ("by", "then"))
        return replace(status, remaining=tuple(event.fields.get("remaining", ())), drain_by=by, drain_then=then)
    if event.kind is EventKind.FENCE:
        return replace(status, fence=event.fields.get("fence"))
    if event.kind is EventKind.DEPLOYMENTS:
        return replace(status, deployments=tuple(event.fields.get("deployments", ())))
    if event.kind is EventKind.DESIRED:
        # Without a desired config the host stays as it is.
        return replace(
            status, desired=event.desired or status.current, desired_digest=str(event.fields.get("digest", ""))
        )
    if event.kind is EventKind.UPDATE_FINISHED:
        return status
    names_desired = event.kind in _NAMES_DESIRED or not event.update_id
    desired = (event.desired if names_desired else "") or status.desired or event.desired
    named = replace(
        status,
        current=event.current or status.current,
        desired=desired,
        desired_digest=status.desired_digest if desired == status.desired else "",
        boot_id=event.boot_id or status.boot_id,
    )
    if event.kind in _PASSING:
        found = event.fields.get("problem")
        return named if found is None else replace(named, problems=_problems(named.problems, found))
    if event.kind is EventKind.UPDATE_DONE:
        digest = str(event.fields.get("digest", ""))
        others = [problem for problem in named.problems if problem.topic != "config"]  # which was about the old one
        current = event.desired or status.goal
        return replace(named, current=current, current_digest=digest, step=None, problems=others)
    if event.kind is EventKind.REFUSED:
        since = event.since or status.since
        return replace(
            named, phase=Phase.DEGRADED, since=since, reason=event.reason, message=event.message, step=None, target=""
        )
    if event.kind in _WITH_STEP:
        # A step that is tried while a service of the host does not answer takes nothing back.
        stuck = status.phase is Phase.DEGRADED and status.update_id == event.update_id
        phase = status.phase if stuck else event.phase
        return replace(named, phase=phase, update_id=event.update_id, target=_target(named, event), step=event.step)
    return replace(
        named,
        phase=event.phase,
        reason=event.reason,
        message=event.message,
        since=event.since or status.since,
        update_id=event.update_id,
        target=_target(named, event),
        step=status.step if event.phase is status.phase and event.phase in (Phase.WRITING, Phase.ACTING) else None,
        remaining=status.remaining if event.phase is status.phase is Phase.DRAINING else None,
        drained=_drained(status, event),
    )


def _problems(known: Sequence[StatusProblem], found: StatusProblem) -> Sequence[StatusProblem]:
    others = [problem for problem in known if problem.topic != found.topic]
    return tuple([*others, found] if found.reason else others)


def _target(status: Status, event: Event) -> str:
    if event.phase in (Phase.IDLE, Phase.DEGRADED) or not event.update_id:
        return ""
    return event.desired or status.target


def _drained(status: Status, event: Event) -> bool:
    """Return whether the node is drained: from the end of a complete drain until its update or maintenance ends."""
    if event.phase in _UNDRAINED:
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
    if status.problems:
        parts.append("problem: " + "; ".join(f"{found.reason}: {found.message}" for found in status.problems))
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
        "lease": lease,
        "drain": _drain(status),
        "fence": None if status.fence is None else fence_to_dict(status.fence),
        "maintenance": _maintenance(status),
        "problems": [asdict(problem) for problem in status.problems],
        "daemon": daemon,
    }
