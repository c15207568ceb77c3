# SPDX-License-Identifier: Apache-2.0
"""The sinks of events for the journal and for systemd's ``STATUS=``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, assert_never

from nodeagent import log
from nodeagent.agent.report.report import Sink
from nodeagent.core.boot import RebootKind
from nodeagent.core.plan.bootloader import phrase
from nodeagent.core.plan.deployment import Deployment
from nodeagent.core.plan.os_changes import summary
from nodeagent.report.status import Status, line
from nodeagent.update.history.outcome import ENDED_UNCHANGED
from nodeagent.update.ports import events
from nodeagent.update.ports.events import Event, StatusProblem, StepProgress, UpdateContext

# Pods in one line. The status has all of them.
PODS = 5
# The steps that an admin notices, by the beginning of their names. The others write files.
_NOTICEABLE = ("daemon-reload", "stop", "reload", "restart", "reboot")


def sentence(event: Event, status: Status) -> str:
    """Return the message of an event: what happened, to which object, and the cause of a failure."""
    match event:
        case events.DaemonStarted(version=version):
            return f"nodeagent {version} started, current config is {status.current or 'none'}"
        case events.DaemonStopped():
            return "stopped"
        case events.UpdateStarted(about=about, actions=actions):
            return f"updating from {about.current or 'nothing'} to {about.desired}: {actions}"
        case events.PhaseEntered(about=about, message=message):
            return f"{about.phase}: {message}" if message else str(about.phase)
        case events.StepStarted(step=step):
            return step.name
        case events.StepDone(step=step, seconds=seconds):
            return f"{step.name}: done in {seconds:.1f} s"
        case events.StepSkipped(step=step, message=message, reason=reason):
            return f"{step.name}: {'skipped' if reason else 'not needed'}, {message}"
        case events.StepFailed(step=step, message=message):
            return f"{step.name} failed: {message}"
        case events.StagingAdvanced(step=step):
            return f"staging: {step.name}" + (f" ({step.index}/{step.count})" if step.count else "")
        case events.FenceChanged(message=message):
            return f"fence: {message}"
        case events.DeploymentsChanged(deployments=deployments):
            return "deployments, in boot order: " + "; ".join(map(_deployment, deployments))
        case events.StagedInspected(changes=changes):
            return f"the staged deployment {changes.staged}: {summary(changes)}"
        case events.BootloaderChecked(check=check):
            return phrase(check)
        case events.FallbackChosen(message=message, kind=kind):
            return f"falling back to a {'soft ' if kind is RebootKind.SOFT else ''}reboot: {message}"
        case events.RevertStarted(about=about, message=message):
            return f"reverting to {about.current or 'the state before the update'}: {message}"
        case events.UpdateDone(about=about, message=message):
            return f"{about.desired} is the current config" + (f" ({message})" if message else "")
        case events.SafePartsApplied(about=about, partial=partial):
            return f"{about.desired}: {partial.words}"
        case events.HostDegraded(message=message, reason=reason):
            return f"degraded, {reason}: {message}"
        case events.ConfigRefused(message=message, reason=reason):
            return f"refused, {reason}: {message}"
        case events.DesiredChanged(name=name):
            return f"{name} is the desired config" if name else "no config is desired"
        case events.UpdateFinished(entry=entry):
            how = f": {entry.message}" if entry.message else ""
            return f"the update to {entry.to_name} has ended, {entry.outcome}{how}"
        case events.UpdateResumed(about=about, decision=decision):
            return f"resuming the update to {about.desired}: {decision}"
        case events.LeaseChanged(holder=holder):
            return f"lease: {holder.name} ({holder.reason})" if holder else "lease: free"
        case events.MaintenanceChanged(message=message):
            return f"maintenance: {message}"
        case events.EtcdMemberChanged(progress=progress, message=message):
            return f"etcd {progress.operation}: {message}" if progress else f"etcd: {message}"
        case events.DriftChanged(message=message):
            return f"drift: {message}"
        case events.DrainAdvanced(remaining=remaining):
            shown = "; ".join(f"{pod.namespace}/{pod.name}: {pod.why}" for pod in remaining[:PODS])
            return f"drain: {len(remaining)} pods remaining: {shown}" if remaining else "drain: complete"
        case (
            events.UpdateWaiting()
            | events.UpdateCancelled()
            | events.Warned()
            | StatusProblem()
            | events.ProblemSolved()
        ):
            return event.message
        case _:
            assert_never(event)


def _deployment(deployment: Deployment) -> str:
    name = deployment.version or deployment.digest or deployment.checksum
    marks = [word for word, is_so in (("booted", deployment.booted), ("staged", deployment.staged)) if is_so]
    return f"{name} ({', '.join(marks)})" if marks else name


def _priority(event: Event) -> int | None:
    """Return the priority of the entry if it differs from the default of its kind."""
    match event:
        case events.StagingAdvanced() | events.FenceChanged() | events.DrainAdvanced():
            # The status has every sample, and the journal each change.
            return log.DEBUG if event.routine else None
        case events.ConfigRefused(repeated=True) | events.LeaseChanged(renewed=True):
            return log.DEBUG
        case events.MaintenanceChanged(message=""):
            return log.DEBUG
        # Their kind has the priority of a warning, which the end of a problem does not deserve.
        case events.ProblemSolved() | events.DriftChanged(drift=()):
            return log.NOTICE
        case events.UpdateFinished(entry=entry) if entry.outcome not in ENDED_UNCHANGED:
            # UpdateDone, Degraded or Reverting has an entry of its own with the same text.
            return log.DEBUG
        case events.StepDone(step=step) | events.StepSkipped(step=step) if step.name.startswith(_NOTICEABLE):
            return log.INFO
        case _:
            return None


def _fields(event: Event, status: Status) -> Mapping[str, str | int | float | None]:
    """Return the fields that only some kinds of events have."""
    match event:
        case events.UpdateStarted(writes=writes):
            return {"writes": writes}
        case events.StepDone(seconds=seconds):
            return {"seconds": round(seconds, 3)}
        case events.StagingAdvanced(fetched_bytes=fetched):
            return {"fetched_bytes": fetched}
        case events.UpdateDone():
            return {"seconds": round(event.seconds, 3), "reboots": event.reboots, "digest": event.digest}
        case events.SafePartsApplied(partial=partial):
            return {"reason": partial.cause.reason, "applied": len(partial.applied), "waits": len(partial.waits)}
        case events.DesiredChanged(name=name, digest=digest):
            return {"desired": name, "digest": digest}
        case events.UpdateFinished(entry=entry, exit_code=code):
            names = {"update_id": entry.update_id, "current": entry.from_name, "desired": entry.to_name}
            return {
                **names,
                "reason": entry.reason,
                "outcome": entry.outcome,
                "digest": entry.to_digest,
                "exit_code": code,
            }
        case events.MaintenanceChanged(maintenance=note, waits=waits):
            if note is None:
                return {"waits": waits}
            return {"waits": waits, "requester": note.requester, "why": note.reason, "until": note.until}
        case events.DrainAdvanced(remaining=remaining, deadline=by, then=then):
            return {"update_id": status.update_id, "left": len(remaining), "by": by, "then": then}
        case events.EtcdMemberChanged(progress=progress):
            return {"requester": progress.requester, "ended": progress.ended} if progress else {}
        case events.DriftChanged(config=config, drift=drift):
            return {"current": config, "entries": len(drift), "solved": int(not drift)}
        case events.ProblemSolved():
            return {"solved": 1}
        case _:
            return {}


def to_journal(event: Event, status: Status) -> None:
    if isinstance(event, events.FenceChanged) and not event.message:
        # The fence samples every second. Samples without a message are for the status and the metrics only.
        return
    about = getattr(event, "about", UpdateContext(status.phase))
    if isinstance(event, events.PhaseEntered):
        log.change_context(phase=str(about.phase))
    step: StepProgress | None = getattr(event, "step", None)
    fields: dict[str, Any] = {
        "phase": str(about.phase),
        "reason": getattr(event, "reason", ""),
        "update_id": about.update_id,
        "current": about.current,
        "desired": about.desired,
    }
    if step is not None:
        counts = {"index": step.index, "count": step.count, "percent": step.percent}
        fields |= {"step": step.name, **counts, "step_id": step.id}
    # Problems share the MESSAGE_ID of warnings: their reason says which problem it is.
    kind = events.Warned if isinstance(event, StatusProblem | events.ProblemSolved) else type(event)
    log.event(kind, sentence(event, status), priority=_priority(event), **{**fields, **_fields(event, status)})


def to_notify(notify: Callable[[str], None]) -> Sink:
    """Return a sink that calls ``notify`` with the status in one line."""

    def sink(_event: Event, status: Status) -> None:
        notify(line(status))

    return sink
