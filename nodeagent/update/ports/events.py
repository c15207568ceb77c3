# SPDX-License-Identifier: Apache-2.0
"""Events that the daemon emits, with one class for each kind. A feature has events of its own, in its own folder.

The report is the only reader: it folds them into the status, and passes them to the journal, D-Bus, the metrics and the
cluster. What they do with an event is in the view of its kind (``report.event_view``). ``reason`` is a stable word,
``message`` is for operators. ``routine``: worth a line at level debug only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nodeagent.core.boot import RebootKind
from nodeagent.core.plan.deployment import Deployment
from nodeagent.core.plan.os_changes import OsChanges
from nodeagent.update.history.lasting import Partial
from nodeagent.update.history.trail import StagingPace
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.store import HistoryEntry
from nodeagent.update.record import FailedUnit
from nodeagent.update.states import Phase


@dataclass(frozen=True, slots=True)
class Event:
    """The base of all kinds of events."""


@dataclass(frozen=True, slots=True)
class UpdateContext:
    """The update that an event is about, and its state. Without an update only the phase is known.

    ``reboot`` is the kind of the reboot that the update requests now, None in any other phase.
    """

    # Values, and not the update itself: a sink may work when the update is in another state.
    phase: Phase
    update_id: str = ""
    current: str = ""
    desired: str = ""
    boot_id: str = ""
    since: str = ""
    failed_unit: FailedUnit | None = None
    reboot: RebootKind | None = None


@dataclass(frozen=True, slots=True)
class StepProgress:
    """``index`` counts from 1; ``percent`` is of the whole update, 0 to 100. ``id`` is "" for a task of a staging."""

    name: str
    index: int
    count: int
    percent: int
    id: str = ""


@dataclass(frozen=True, slots=True)
class UpdateEvent(Event):
    about: UpdateContext

    def pace(self) -> StagingPace | None:
        """Return how fast a staging may write, for the trail of the update; None if the event is not about that."""
        return None


@dataclass(frozen=True, slots=True)
class StepEvent(UpdateEvent):
    step: StepProgress


@dataclass(frozen=True, slots=True)
class CauseEvent(UpdateEvent):
    message: str
    reason: str


@dataclass(frozen=True, slots=True)
class UpdateStarted(UpdateEvent):
    actions: str
    writes: int


@dataclass(frozen=True, slots=True)
class UpdateResumed(UpdateEvent):
    """After a crash or a reboot."""

    decision: str


@dataclass(frozen=True, slots=True)
class PhaseEntered(UpdateEvent):
    """A phase began, or its reason or message changed."""

    message: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StepStarted(StepEvent):
    pass


@dataclass(frozen=True, slots=True)
class StepDone(StepEvent):
    seconds: float


@dataclass(frozen=True, slots=True)
class StepSkipped(StepEvent):
    """``reason`` is "" if there was nothing to do."""

    message: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StepFailed(StepEvent):
    message: str
    reason: str


@dataclass(frozen=True, slots=True)
class StagingAdvanced(StepEvent):
    # None if they are not known: rpm-ostree knows those of an ostree remote, and of a registry only layers.
    fetched_bytes: int | None
    routine: bool = False


@dataclass(frozen=True, slots=True)
class UpdateWaiting(CauseEvent):
    """For another actor, which the message names, or for the next attempt of a staging.

    ``brief`` is the part of the message that lasts; "": all of it.
    ``routine``: only the rest of the message has changed, which the status shows and nothing else.
    """

    brief: str = ""
    routine: bool = False


@dataclass(frozen=True, slots=True)
class UpdateCancelled(CauseEvent):
    """An operator cancelled the update. Its end is reported as of any update."""


@dataclass(frozen=True, slots=True)
class FallbackChosen(CauseEvent):
    """The host reboots because an action failed, the drain was late, or a soft reboot did not help."""

    kind: RebootKind = RebootKind.FULL


@dataclass(frozen=True, slots=True)
class RevertStarted(CauseEvent):
    pass


@dataclass(frozen=True, slots=True)
class HostDegraded(CauseEvent):
    pass


@dataclass(frozen=True, slots=True)
class ConfigRefused(CauseEvent):
    """No update to the desired config begins. ``repeated``: for the reason that was reported before."""

    repeated: bool = False


@dataclass(frozen=True, slots=True)
class UpdateDone(UpdateEvent):
    message: str
    seconds: float
    reboots: int
    digest: str


@dataclass(frozen=True, slots=True)
class SafePartsApplied(UpdateEvent):
    """The host has the parts of the desired config that need no disruption. The current config is the same."""

    partial: Partial


@dataclass(frozen=True, slots=True)
class Warned(UpdateEvent):
    message: str
    reason: str = ""
    step: StepProgress | None = None


@dataclass(frozen=True, slots=True)
class DaemonStarted(Event):
    version: str


@dataclass(frozen=True, slots=True)
class DaemonStopped(Event):
    pass


@dataclass(frozen=True, slots=True)
class DesiredChanged(Event):
    """``name`` and ``digest`` are "" if no config is desired."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class DeploymentsChanged(Event):
    """The deployments in boot order."""

    deployments: Sequence[Deployment]


@dataclass(frozen=True, slots=True)
class DeploymentsServed(Event):
    """Another feature than before serves the deployments of this host, both by their titles."""

    by: str
    before: str


@dataclass(frozen=True, slots=True)
class StagedInspected(Event):
    """What the staged deployment changes."""

    changes: OsChanges


@dataclass(frozen=True, slots=True)
class LeaseChanged(Event):
    """``holder`` None: the lease is free. ``renewed``: only its expiry changed."""

    holder: Holder | None
    renewed: bool = False


@dataclass(frozen=True, slots=True)
class StatusProblem(Event):
    """A problem that does not stop the agent and that an admin must fix. There is one for each ``topic``: settings,
    policy, store, config, sweep, etcd."""

    # A later problem of a topic replaces the earlier one, so the status has a bounded number of them.
    topic: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ProblemSolved(Event):
    topic: str
    message: str


@dataclass(frozen=True, slots=True)
class UpdateFinished(Event):
    """An update, or a request for one, has ended. ``exit_code`` is that of a command which waited for it.

    ``tried_again``: its config was requested again before this end, so another update to it follows.
    """

    entry: HistoryEntry
    exit_code: int
    tried_again: bool = False
