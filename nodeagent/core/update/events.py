"""Events that the executor emits. The report is the only reader; everything that users see comes from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from nodeagent.core.update.phase import Phase

__all__ = ["Event", "EventKind", "StepProgress"]


class EventKind(StrEnum):
    STARTED = "started"  # the daemon is up
    UPDATE_STARTED = "update-started"
    PHASE = "phase"
    STEP_STARTED = "step-started"
    STEP_DONE = "step-done"
    STEP_SKIPPED = "step-skipped"
    STEP_FAILED = "step-failed"
    STAGING = "staging"  # how far the OS is staged; fields["often"]: not worth a line in the journal
    FENCE = "fence"  # fields["fence"] is how it stands, or None; without a message only numbers changed
    DEPLOYMENTS = "deployments"  # fields["deployments"] is the boot order as it is now
    WAITING = "waiting"  # for another actor; the message names it
    FALLBACK = "fallback"  # we reboot because an action failed
    REVERTING = "reverting"
    UPDATE_DONE = "update-done"
    DEGRADED = "degraded"
    REFUSED = "refused"  # a desired config that was not even started
    DESIRED = "desired"  # another config is desired now; fields["digest"] is its digest
    UPDATE_FINISHED = "update-finished"  # fields: entry (a HistoryEntry), outcome, digest, exit_code
    DRAIN = "drain"  # fields["remaining"] are the pods that are left; fields["often"] as above
    LEASE = "lease"  # the holder changed; fields["lease"] is who has it now, or None
    MAINTENANCE = "maintenance"  # fields["maintenance"] is the request, or None; fields["waits"] is the reason to wait
    RESUMED = "resumed"  # after a crash or a reboot
    STOPPED = "stopped"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class StepProgress:
    """``index`` counts from 1; ``percent`` is of the whole update, 0 to 100."""

    name: str
    index: int
    count: int
    percent: int


@dataclass(frozen=True, slots=True)
class Event:
    kind: EventKind
    phase: Phase
    message: str = ""
    reason: str = ""
    update_id: str = ""
    current: str = ""
    desired: str = ""
    boot_id: str = ""
    since: str = ""
    step: StepProgress | None = None
    step_id: str = ""
    seconds: float | None = None  # how long the thing took that this event ends
    fields: Mapping[str, Any] = field(default_factory=dict)  # further facts for the journal
