"""Where events go: the journal and systemd's ``STATUS=``. D-Bus is in ``service``."""

from __future__ import annotations

from collections.abc import Callable

from nodeagent import log
from nodeagent.agent.report.report import Sink
from nodeagent.core.plan.deployment import Deployment
from nodeagent.core.report.status import Status, line
from nodeagent.core.update.events import Event, EventKind
from nodeagent.core.update.outcome import ENDED_UNCHANGED

__all__ = ["sentence", "to_journal", "to_notify"]

PODS = 5  # in a line; status has all of them
_ANYWHERE = (EventKind.DEPLOYMENTS, EventKind.DESIRED, EventKind.UPDATE_FINISHED)  # whatever the phase is
_ACTS = ("daemon-reload", "stop", "reload", "restart", "reboot")


def sentence(event: Event, status: Status) -> str:
    """One line for people: what happened, to what, and why if it went wrong."""
    step = event.step.name if event.step else ""
    match event.kind:
        case EventKind.STARTED:
            return f"nodeagent {event.message} started, current config is {status.current or 'none'}"
        case EventKind.UPDATE_STARTED:
            return f"updating from {event.current or 'nothing'} to {event.desired}: {event.message}"
        case EventKind.PHASE:
            return f"{event.phase}: {event.message}" if event.message else str(event.phase)
        case EventKind.STEP_STARTED:
            return step
        case EventKind.STEP_DONE:
            return f"{step}: done in {event.seconds:.1f} s" if event.seconds is not None else f"{step}: done"
        case EventKind.STEP_SKIPPED:
            return f"{step}: {'skipped' if event.reason else 'not needed'}, {event.message}"
        case EventKind.STEP_FAILED:
            return f"{step} failed: {event.message}"
        case EventKind.STAGING:
            return f"staging: {step}{_parts(event)}"
        case EventKind.FENCE:
            return f"fence: {event.message}"
        case EventKind.DEPLOYMENTS:
            return "deployments, in boot order: " + "; ".join(map(_deployment, status.deployments))
        case EventKind.FALLBACK:
            return f"falling back to a reboot: {event.message}"
        case EventKind.REVERTING:
            return f"reverting to {event.current or 'what was there before'}: {event.message}"
        case EventKind.UPDATE_DONE:
            how = f" ({event.message})" if event.message else ""
            return f"{event.desired} is the current config{how}"
        case EventKind.DEGRADED:
            return f"degraded, {event.reason}: {event.message}"
        case EventKind.REFUSED:
            return f"refused, {event.reason}: {event.message}"
        case EventKind.DESIRED:
            return f"{event.desired} is the desired config" if event.desired else "no config is desired"
        case EventKind.UPDATE_FINISHED:
            how = f": {event.message}" if event.message else ""
            return f"the update to {event.desired} has ended, {event.fields['outcome']}{how}"
        case EventKind.RESUMED:
            return f"resuming the update to {event.desired}: {event.message}"
        case EventKind.LEASE:
            return f"lease: {status.lease.name} ({status.lease.reason})" if status.lease else "lease: free"
        case EventKind.MAINTENANCE:
            return f"maintenance: {event.message}"
        case EventKind.DRAIN:
            left = status.remaining or ()
            shown = "; ".join(f"{pod.namespace}/{pod.name}: {pod.why}" for pod in left[:PODS])
            return f"drain: {len(left)} pods are left: {shown}" if left else "drain: no pod is left"
        case EventKind.STOPPED:
            return "stopped"
        case EventKind.WAITING | EventKind.WARNING:
            return event.message


def _parts(event: Event) -> str:
    return f" ({event.step.index}/{event.step.count})" if event.step is not None and event.step.count else ""


def _deployment(found: Deployment) -> str:
    name = found.version or found.digest or found.checksum
    marks = [word for word, is_so in (("booted", found.booted), ("staged", found.staged)) if is_so]
    return f"{name} ({', '.join(marks)})" if marks else name


def _priority(event: Event) -> int | None:
    """Steps that an admin notices count more than the writes around them; progress is a line for every tenth."""
    if event.fields.get("often"):
        return log.DEBUG
    if event.fields.get("solved"):
        return log.NOTICE
    if event.kind is EventKind.MAINTENANCE and not event.message:
        return log.DEBUG
    if event.kind is EventKind.UPDATE_FINISHED and event.fields["outcome"] not in ENDED_UNCHANGED:
        return log.DEBUG  # an entry of its own has said so
    step = event.step.name if event.step else ""
    if event.kind in (EventKind.STEP_DONE, EventKind.STEP_SKIPPED) and step.startswith(_ACTS):
        return log.INFO
    return None


def to_journal(event: Event, status: Status) -> None:
    if event.kind is EventKind.FENCE and not event.message:
        return  # numbers, each second
    step = event.step
    log.event(
        event.kind,
        sentence(event, status),
        priority=_priority(event),
        phase=str(status.phase if event.kind in _ANYWHERE else event.phase),
        reason=event.reason,
        update_id=event.update_id,
        current=event.current,
        desired=event.desired,
        step=step.name if step else None,
        index=step.index if step else None,
        count=step.count if step else None,
        percent=step.percent if step else None,
        step_id=event.step_id,
        seconds=round(event.seconds, 3) if event.seconds is not None else None,
        **{
            name: value
            for name, value in event.fields.items()
            if isinstance(value, str | int | float) and not isinstance(value, bool)
        },
    )


def to_notify(tell: Callable[[str], None]) -> Sink:
    def sink(_event: Event, status: Status) -> None:
        tell(line(status))

    return sink
