# SPDX-License-Identifier: Apache-2.0
"""The status of the MachineConfigNode of this node, as the machine-config-daemon reports an update.

The controller and ``oc`` read it: True is done, Unknown in progress, False not reached; at the end ``Updated`` is True
and all others are False again. Others write conditions of the same object (the controller its drain, the pinned image
sets), so the present list is kept, and only a condition with another status is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nodeagent.core.coordination.annotations import DaemonState, clean
from nodeagent.core.coordination.kube_objects import Condition, ConfigVersions, MachineConfigNodeStatus
from nodeagent.features.cluster.decide.annotations import annotations_for, is_name
from nodeagent.report.status import Status
from nodeagent.update.states import Phase

# In the order in which an update passes them. The three after UpdateExecuted are parts of it, and so on.
PREPARED: Final = "UpdatePrepared"
EXECUTED: Final = "UpdateExecuted"
CORDONED: Final = "Cordoned"
DRAINED: Final = "Drained"
APPLIED: Final = "AppliedFilesAndOS"
# In place of APPLIED where the controller has the feature gate ImageModeStatusReporting.
APPLIED_PARTS: Final = ("AppliedFiles", "AppliedOSImage")
AFTER: Final = "UpdatePostActionComplete"
REBOOTED: Final = "RebootedNode"
COMPLETE: Final = "UpdateComplete"
UNCORDONED: Final = "Uncordoned"
RESUMED: Final = "Resumed"
UPDATED: Final = "Updated"
DEGRADED: Final = "NodeDegraded"
STEPS: Final = (
    PREPARED,
    EXECUTED,
    CORDONED,
    DRAINED,
    APPLIED,
    AFTER,
    REBOOTED,
    COMPLETE,
    UNCORDONED,
    RESUMED,
    UPDATED,
    DEGRADED,
)

DONE, UNDER_WAY, NOT_REACHED = "True", "Unknown", "False"
# What each phase has done, and what is under way in it. A phase before the first write has done nothing else.
PHASES: Final[Mapping[Phase, tuple[Sequence[str], Sequence[str]]]] = {
    Phase.STAGING: ((), (PREPARED,)),
    Phase.LEASING: ((PREPARED,), ()),
    Phase.DRAINING: ((PREPARED, CORDONED), (EXECUTED, DRAINED)),
    Phase.WRITING: ((PREPARED,), (EXECUTED, APPLIED)),
    Phase.ACTING: ((PREPARED, EXECUTED, APPLIED), (AFTER,)),
    Phase.REBOOTING: ((PREPARED, EXECUTED, APPLIED), (AFTER, REBOOTED)),
    Phase.VERIFYING: ((PREPARED, EXECUTED, APPLIED), (AFTER,)),
    Phase.REVERTING: ((PREPARED,), (EXECUTED, APPLIED)),
    Phase.RELEASING: ((PREPARED, EXECUTED, APPLIED, AFTER, RESUMED), (COMPLETE,)),
    Phase.IDLE: ((UPDATED,), ()),
}


@dataclass(frozen=True, slots=True)
class UpdateProgress:
    """``current`` is the verified config, "" while an update is in progress. ``why`` is set while degraded."""

    phase: Phase
    current: str
    desired: str
    drained: bool = False
    reason: str = ""
    why: str = ""


def progress_of(status: Status) -> UpdateProgress | None:
    """Return None while no config was applied and no update is in progress, as ``annotations_for``."""
    notes = annotations_for(status)
    if notes is None:
        return None
    failed = notes.state in (DaemonState.DEGRADED, DaemonState.UNRECONCILABLE)
    return UpdateProgress(
        status.phase,
        notes.current if notes.verified else "",
        notes.current if notes.verified else status.goal,
        status.drained,
        status.reason if failed else "",
        clean(status.message) if failed else "",
    )


def changed_status(
    progress: UpdateProgress, there: MachineConfigNodeStatus, now: str
) -> MachineConfigNodeStatus | None:
    """Return the status to write over ``there``, None if it is right. ``now`` is RFC 3339 in seconds."""
    before = {entry["type"]: entry for entry in there.get("conditions") or ()}
    conditions = dict(before)
    for kind, state in _states(progress, before).items():
        old = before.get(kind)
        message = _message(progress, kind, state)
        if old is None or old["status"] != state or (kind == DEGRADED and old.get("message") != message):
            since = (old.get("lastTransitionTime") or now) if old is not None and old["status"] == state else now
            reason = _reason(progress, kind, state)
            conditions[kind] = {
                "type": kind,
                "status": state,
                "reason": reason,
                "message": message,
                "lastTransitionTime": since,
            }
    versions = _versions(progress, there.get("configVersion") or {})
    if conditions == before and versions == (there.get("configVersion") or {}):
        return None
    return {"conditions": list(conditions.values()), **({"configVersion": versions} if versions else {})}


def _states(progress: UpdateProgress, before: Mapping[str, Condition]) -> Mapping[str, str]:
    if progress.phase is Phase.DEGRADED:
        # The steps stay as they were: they show where it failed.
        return {UPDATED: NOT_REACHED, DEGRADED: DONE}
    done, under_way = PHASES[progress.phase]
    states = dict.fromkeys(STEPS, NOT_REACHED)
    states |= dict.fromkeys(under_way, UNDER_WAY) | dict.fromkeys(done, DONE)
    if progress.phase is not Phase.IDLE:
        if progress.drained:
            states |= {CORDONED: DONE, DRAINED: DONE}
            if progress.phase is Phase.RELEASING:
                states[UNCORDONED] = UNDER_WAY
        # This process does not know what its predecessor did before the boot; the object does.
        rebooted = REBOOTED in before and before[REBOOTED]["status"] in (DONE, UNDER_WAY)
        if rebooted and progress.phase in (Phase.VERIFYING, Phase.RELEASING):
            states[REBOOTED] = DONE
    if any(part in before for part in APPLIED_PARTS):
        applied = states.pop(APPLIED)
        states |= dict.fromkeys(APPLIED_PARTS, applied)
    return states


def _versions(progress: UpdateProgress, there: ConfigVersions) -> ConfigVersions:
    versions = there.copy()
    # The names of local configs need not be names of objects. Those are left out, or the API server would refuse all.
    if is_name(progress.desired):
        versions["desired"] = progress.desired
    # The schema requires the desired config beside the current one.
    if is_name(progress.current) and "desired" in versions:
        versions["current"] = progress.current
    return versions


def _reason(progress: UpdateProgress, kind: str, state: str) -> str:
    if kind == DEGRADED and state == DONE:
        return progress.reason or "Degraded"
    # The schema of a condition requires a reason, also for what has not happened.
    return "NotYetOccurred" if state == NOT_REACHED else str(progress.phase)


def _message(progress: UpdateProgress, kind: str, state: str) -> str:
    if kind == DEGRADED:
        return (progress.why or progress.reason) if state == DONE else ""
    return f"nodeagent: update to {progress.desired}" if state != NOT_REACHED else ""
