# SPDX-License-Identifier: Apache-2.0
"""The record: what the agent must still know after it was killed. One per host, kept in the store.

Markers go in before the effect and are cleared after success, so the record may claim less than was done, never
more. It holds no content: configs and previous content live in tables of their own beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nodeagent.core.boot import RebootKind, kernel_boot
from nodeagent.errors import AgentError
from nodeagent.reasons import Reason
from nodeagent.update.course import COURSE, following
from nodeagent.update.history.lasting import Hold, Lasting, Partial, Rejection, RequestedReboot, added
from nodeagent.update.history.trail import Trail
from nodeagent.update.states import (
    INTERRUPTED,
    Abort,
    Apply,
    Fallback,
    Leg,
    Phase,
    Rest,
    Revert,
    State,
    Unreleased,
    Written,
    fallback_of,
)

# The update of a record that says nothing that can be understood.
UNKNOWN_UPDATE = "unknown"


class IllegalTransition(AgentError):
    default_reason = Reason.ILLEGAL_TRANSITION


@dataclass(frozen=True, slots=True)
class FailedUnit:
    """A unit that failed in an update. ``at`` is RFC 3339: its journal explains the failure until then."""

    name: str
    at: str = ""


@dataclass(frozen=True, slots=True)
class UnitsBefore:
    """Units as they were before the first write, and whether the Node of a cluster was ready.

    ``states`` has the states (``unit_verdict.state_before``) of the units that the plan names or changes, that the
    config enables, and that actions take along; the latter are in ``along`` with the unit that does. ``due`` have to
    come up although they did not run. ``healthy`` passed their own health check.
    """

    healthy: frozenset[str] = frozenset()
    due: frozenset[str] = frozenset()
    states: Mapping[str, str] = field(default_factory=dict)
    along: Mapping[str, str] = field(default_factory=dict)
    node_ready: bool = False


@dataclass(frozen=True, slots=True)
class OsProgress:
    """``target`` is what the update needs of the OS (see ``core.plan.deployment``), None if it leaves the OS as it is.

    ``origin`` is the id of the deployment that was booted at the time of the staging, or of the one that a rollback
    made of it. ``staged`` is the id of a deployment of ours, kept until the next update if that one was abandoned, and
    ``staged_boot_id`` the boot in which it was staged. ``lost_stagings`` counts those lost for no known reason,
    ``restage_count`` the stagings after the first write. ``clean_shutdown_boot_id`` is the boot whose shutdown was in
    order, as far as the agent saw it, after it had requested the reboot. ``etcd_disk`` is the latency of etcd's disk
    around the last staging, if a feature measures it. ``kept`` is the target of a staged deployment that no
    update uses now: of an earlier update, while this one leaves the OS as it is, or of a plan, while no update runs.
    ``target`` beside it in a record at rest means that the staging for the plan is not complete.
    """

    target: Mapping[str, Any] | None = None
    origin: str = ""
    staged: str = ""
    staged_boot_id: str = ""
    lost_stagings: int = 0
    restage_count: int = 0
    clean_shutdown_boot_id: str = ""
    etcd_disk: Mapping[str, Any] = field(default_factory=dict)
    kept: Mapping[str, Any] | None = None
    # What the staged deployment changes, as a phrase for the history.
    summary: str = ""
    # What features keep for this target, as JSON data. Each has keys that begin with its name.
    parts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def leftover(self) -> OsProgress:
        """The deployment of the agent that may still be staged after the update, and is discarded later."""
        target = self.target if self.target is not None else self.kept
        return OsProgress(
            target=target,
            staged=self.staged,
            staged_boot_id=self.staged_boot_id,
            parts=self.parts,
        )


@dataclass(frozen=True, slots=True)
class Record:
    """Times are RFC 3339 in UTC. Digests are keys of configs in the store; "" means that there is none.

    ``boot_id`` is that of the boot in which the phase was entered. ``plan`` has the form of the contract, see
    ``core.plan.plan_json``. ``writes`` are the write steps, as (type, argument): the disk that they came from is gone.
    ``newly_managed`` are snapshot keys that are managed from this update on. ``arguments`` are families of kernel
    arguments that only one of the current and the new config names. ``repairs``: the previous update ended
    half-way, so a unit that does not run may be its doing. ``notes`` are for the history.
    ``drifted`` are entries that differed before the update and that it leaves as they are.
    ``safe_for``: the digest of the desired config for which this update applies what needs no disruption, "" for an
    ordinary update. ``partial`` is what its end makes of ``Lasting.partial``; None: the config is applied completely.
    ``reboot`` is the request for a reboot that this update is; None for an update that changes the config.
    """

    phase: Phase = Phase.IDLE
    leg: Leg = field(default_factory=Rest)
    since: str = ""
    boot_id: str = ""
    # Why the host is degraded, or what the update waits for.
    reason: str = ""
    message: str = ""
    # Number of reboot requests that logind accepted in this phase.
    reboot_requests: int = 0
    # Logind is called for a reboot in this phase; its answer may be lost.
    reboot_called: bool = False

    update_id: str = ""
    started: str = ""
    # The config that was current at the start.
    from_digest: str = ""
    to_digest: str = ""
    # Meaning of the config to_digest, see core.config.machineconfig.
    to_meaning: str = ""
    from_name: str = ""
    to_name: str = ""
    plan: Mapping[str, Any] | None = None
    writes: tuple[tuple[str, str], ...] = ()
    newly_managed: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    repairs: bool = False
    notes: tuple[str, ...] = ()
    drifted: tuple[str, ...] = ()
    # The unit that failed last in this update.
    failed_unit: FailedUnit | None = None
    safe_for: str = ""
    partial: Partial | None = None
    reboot: RequestedReboot | None = None

    units_before: UnitsBefore = field(default_factory=UnitsBefore)
    os: OsProgress = field(default_factory=OsProgress)
    # Digests, newest first, of configs that earlier updates left half-way, until a good end.
    unfinished: tuple[str, ...] = ()
    # The operation that holds the lease and the slot of a node left half-way. A repair continues with it.
    held: str = ""
    # The operation that cordoned the node: this update, or an earlier one that ended half-way.
    cordon: str = ""
    # Deadline of the drain, on the steady clock of the boot in boot_id.
    drain_until: float = 0.0
    # For the history only: nothing is decided by it.
    trail: Trail = field(default_factory=Trail)
    lasting: Lasting = field(default_factory=Lasting)

    def __post_init__(self) -> None:
        if self.state not in COURSE:
            raise ValueError(f"{type(self.leg).__name__} has no phase {self.phase}")

    @property
    def state(self) -> State:
        return type(self.leg), self.phase

    @property
    def operation(self) -> str:
        """The id under which the lease, the slots and the cordon are acquired."""
        return self.held or self.update_id

    @property
    def last_leg(self) -> Leg:
        """The leg, or the one in which an update ended that is still to be released."""
        return self.leg.leg if isinstance(self.leg, Unreleased) else self.leg

    @property
    def written(self) -> Written:
        """The progress since the first write; an empty one before it."""
        return self.last_leg if isinstance(self.last_leg, Written) else Written()

    @property
    def fallback(self) -> str:
        """The cause of an unplanned reboot; "" if there is none."""
        match self.last_leg:
            case Apply(reboot_instead=cause) | Fallback(because=cause) | Revert(fallback=cause):
                return cause
            case _:
                return ""

    @property
    def reboot_kind(self) -> RebootKind:
        """The kind of the reboot that this leg requests."""
        return self.leg.kind if isinstance(self.leg, Apply | Fallback) else RebootKind.FULL

    @property
    def reverting(self) -> bool:
        return isinstance(self.last_leg, Revert)

    @property
    def aborted(self) -> Abort | None:
        """The abort of an update that ends before its first write; None otherwise."""
        return self.last_leg if isinstance(self.last_leg, Abort) else None

    @property
    def hold(self) -> Hold | None:
        """What an operator requested about this update."""
        if (reboot := self.reboot) is not None:
            return Hold(self.to_digest, False, reboot.requester, reboot.boot_staged, reboot.options)
        hold = self.lasting.hold
        return hold if hold is not None and hold.digest == self.to_digest else None

    @property
    def repairs_nothing(self) -> bool:
        """Whether this update is at its end, and the disk holds parts of two configs as it did before."""
        return bool(self.unfinished) and (self.aborted is not None or self.reverting)


def advance(
    record: Record,
    phase: Phase,
    leg: Leg,
    *,
    now: str,
    boot_id: str,
    reason: str = "",
    message: str = "",
) -> Record:
    """Return the record in its next state, the only way to another phase.

    A state that is not in the table is a bug, and stops the update: raises ``IllegalTransition``.
    """
    # The table is the only list of legal transitions. Every caller passes through here.
    if (type(leg), phase) not in following(record.state):
        before, after = type(record.leg).__name__, type(leg).__name__
        raise IllegalTransition(f"{record.phase} -> {phase} ({before} to {after})")
    if record.phase is Phase.VERIFYING and phase is Phase.RELEASING and isinstance(leg, Apply | Fallback):
        # The update is verified, so the host has its config, or the parts that it composed.
        record = replace(record, lasting=replace(record.lasting, partial=record.partial))
    if record.phase is Phase.RELEASING:
        record = _released(record, leg)
    # A record at rest keeps only the data that outlives the update.
    if isinstance(leg, Rest):
        record = _ended(record, phase)
    record = replace(record, reboot_requests=0, reboot_called=False)
    return replace(record, phase=phase, leg=leg, since=now, boot_id=boot_id, reason=reason, message=message)


def _released(record: Record, leg: Leg) -> Record:
    """Return the record after a release: with everything given back, or with an end that is reported before that."""
    if isinstance(leg, Unreleased):
        return replace(record, unfinished=()) if isinstance(leg.leg, Apply | Fallback) else record
    # A node that is half-way as before keeps its cordon and its lease.
    return record if record.repairs_nothing else replace(record, cordon="", held="")


def _ended(record: Record, phase: Phase) -> Record:
    match record.last_leg:
        case Abort(reason=reason) if reason == INTERRUPTED and not record.safe_for and record.reboot is None:
            return _same_update(record)
        case Abort() if phase is Phase.IDLE:
            return at_rest(record)
        case Abort():
            # A degraded host names the config that it could not take.
            return replace(at_rest(record), to_name=record.to_name)
        case Revert() if phase is Phase.IDLE:
            return at_rest(record)
        case Apply() | Fallback() if phase is Phase.IDLE:
            # A deployment that was staged for a plan outlives an update that leaves the OS as it is.
            os = record.os.leftover if record.os.kept is not None else OsProgress()
            return Record(lasting=_without_hold(record), os=os)
        case _:
            return record


def _without_hold(record: Record) -> Lasting:
    """Return what lasts after a good end: a delay of this update, and what was confirmed for it, is over."""
    hold, confirmed = record.lasting.hold, record.lasting.confirmed
    return replace(
        record.lasting,
        hold=None if hold is not None and hold.digest == record.to_digest else hold,
        confirmed=None if confirmed is not None and confirmed.digest == record.to_digest else confirmed,
    )


def is_booted_since(record: Record, boot_id: str) -> bool:
    """Return whether a kernel has started since the first write, whatever the cause."""
    return kernel_boot(record.written.first_write_boot_id) not in ("", kernel_boot(boot_id))


def reboot_requested(record: Record) -> bool:
    """Return whether the agent had requested the reboot, as far as it could record that."""
    return record.phase is Phase.REBOOTING and (record.reboot_called or record.reboot_requests > 0)


def after_boot(record: Record, phase: Phase, *, now: str, boot_id: str) -> Record:
    """Return the record of an update that continues in another boot."""
    assert isinstance(record.leg, Written)
    softly = kernel_boot(record.boot_id) == kernel_boot(boot_id)
    requested = reboot_requested(record)
    leg: Leg = replace(
        record.leg,
        boots=record.leg.boots + 1,
        requested_reboots=record.leg.requested_reboots + int(requested),
        soft_reboots=record.leg.soft_reboots + int(requested and softly),
    )
    if isinstance(leg, Fallback):
        # The boot that took place counts, whichever was requested. One of the kernel is not undone by a soft one.
        starting = record.phase is not Phase.VERIFYING or leg.kind is RebootKind.SOFT
        leg = replace(leg, kind=RebootKind.SOFT if softly and starting else RebootKind.FULL)
    elif isinstance(leg, Apply) and not softly:
        # The kernel started, whatever was requested. A soft reboot alone never makes the planned one a soft one.
        leg = replace(leg, kind=RebootKind.FULL)
    if record.phase is phase:
        return replace(record, leg=leg, boot_id=boot_id)
    if isinstance(leg, Apply) and leg.reboot_instead:
        leg = fallback_of(leg, leg.reboot_instead, RebootKind.SOFT if softly else RebootKind.FULL)
    return advance(record, phase, leg, now=now, boot_id=boot_id)


def degraded_record(reason: str = "", message: str = "", *, since: str = "", update_id: str = "") -> Record:
    """Return a record for a host of which no record is known, or for a report that has none."""
    return Record(Phase.DEGRADED, since=since, reason=reason, message=message, update_id=update_id)


def reject(record: Record, cause: str, now: str, *, reason: str = "") -> Record:
    """Return the record with the config of this update among those that are applied on request only."""
    rejection = Rejection(record.to_digest, record.to_meaning, record.to_name, cause, now, reason)
    if reason == Reason.CANCELLED and record.safe_for:
        # An operator cancels the whole config.
        rejection = replace(rejection, digest=record.safe_for, meaning="")
    rejections = added(record.lasting.rejections, rejection)
    return replace(record, lasting=replace(record.lasting, rejections=rejections))


def at_rest(record: Record) -> Record:
    """Return the record after an update that wrote nothing. It keeps a staged deployment, the lease of a half-way node
    and its cordon."""
    return Record(
        lasting=record.lasting,
        os=record.os.leftover,
        held=record.held,
        cordon=record.cordon,
        unfinished=record.unfinished,
    )


def _same_update(record: Record) -> Record:
    """Return the record at rest of an update that was interrupted before anything was written, with its identity: it
    begins again under its id, or gets its end."""
    return replace(
        at_rest(record),
        update_id=record.update_id,
        started=record.started,
        from_digest=record.from_digest,
        to_digest=record.to_digest,
        from_name=record.from_name,
        to_name=record.to_name,
        plan=record.plan,
        trail=record.trail,
    )


def interrupted(record: Record) -> bool:
    """Return whether an update was interrupted before it wrote anything, and is to begin again."""
    return record.phase is Phase.IDLE and bool(record.update_id)


def in_effect(record: Record, current: str) -> str:
    """Return the digest of the config that the host has: the current one, or the one composed of it and safe parts."""
    return record.lasting.partial.digest if record.lasting.partial is not None else current


def half_way(record: Record) -> bool:
    """Return whether an update ended without a good end or a revert, so that the disk may hold parts of two configs."""
    if record.unfinished and record.phase in (Phase.IDLE, Phase.DEGRADED):
        # The next update was aborted before it wrote anything, or was reverted to that state.
        return True
    if isinstance(record.leg, Unreleased):
        return False
    return record.phase is Phase.DEGRADED and bool(record.update_id) and record.reason != Reason.REVERTED
