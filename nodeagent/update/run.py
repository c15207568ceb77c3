# SPDX-License-Identifier: Apache-2.0
"""The ports, the policy and the update, which every phase receives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Concatenate, ParamSpec

from nodeagent.core.config.file_tree import FileTreeEntry
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.units import OWN_UNIT
from nodeagent.core.display import displayable
from nodeagent.core.once import Once
from nodeagent.core.plan.change import Plan
from nodeagent.core.plan.deployment import OsTarget, target_from_dict
from nodeagent.core.plan.removal import Removal
from nodeagent.core.plan.steps import (
    ActStep,
    Reboot,
    RestartStaticPod,
    Step,
    WriteStep,
    act_steps,
    describe,
    step_from_pair,
    step_id,
    step_unit,
)
from nodeagent.core.times import add_seconds
from nodeagent.errors import AgentError, InvalidInput, Problem
from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason
from nodeagent.update.history import trail_fold
from nodeagent.update.history.lasting import Hold
from nodeagent.update.history.trail_fold import Moment
from nodeagent.update.ports.coordination import NodeDrainer, NodeReadiness
from nodeagent.update.ports.events import Event, PhaseEntered, StepProgress, UpdateContext, UpdateEvent, Warned
from nodeagent.update.ports.host import Clock, Files, HealthChecks, Reporter, StaticPods, UnitFiles, Units, Users
from nodeagent.update.ports.store import Store
from nodeagent.update.ports.system import BootedSystem, Power
from nodeagent.update.record import Record
from nodeagent.update.stages.coordination import Coordination
from nodeagent.update.stages.guard import Guard, RebootRequests
from nodeagent.update.stages.offer import Offer
from nodeagent.update.stages.os_deployments import HostDeployments
from nodeagent.update.stages.reboot_choice import RebootChoice
from nodeagent.update.states import Phase, Unreleased

HOLDER = "nodeagent"

P = ParamSpec("P")

# The class of an event, whose first argument is the context.
OfUpdate = Callable[Concatenate[UpdateContext, P], UpdateEvent]

# Called with words and a deadline on the steady clock, as often as one likes.
Progress = Callable[[str, float], None]


_FULL = RebootChoice()
_NOTHING = Offer()
_NO_REQUESTS = RebootRequests()


@dataclass(frozen=True, slots=True)
class Ports:
    store: Store
    files: Files
    units: Units
    users: Users
    health: HealthChecks
    power: Power
    coordination: Coordination
    # None: no deployments here, so nothing can change the OS.
    os: HostDeployments | None
    # None: no cluster, so nothing to drain.
    node: NodeDrainer | None
    clock: Clock
    reporter: Reporter
    unit_files: UnitFiles
    # None: no cluster, so nothing reports whether the node is ready.
    readiness: NodeReadiness | None = None
    # None: manifests are files as any other.
    static_pods: StaticPods | None = None
    # None: what runs since the boot is not read.
    system: BootedSystem | None = None
    # Those of the features.
    guards: Sequence[Guard] = ()

    @property
    def reboots(self) -> RebootChoice:
        """The choice of the feature that offers one, or that of the base."""
        return next((guard.reboots for guard in self.guards if guard.reboots is not None), _FULL)

    @property
    def offer(self) -> Offer:
        """What the feature that offers one applies of a blocked config; nothing without one."""
        return next((guard.offer for guard in self.guards if guard.offer is not None), _NOTHING)

    @property
    def reboot_requests(self) -> RebootRequests:
        """The requests of the feature that takes them; none without one."""
        requests = (guard.reboot_requests for guard in self.guards)
        return next((taken for taken in requests if taken is not None), _NO_REQUESTS)


@dataclass(frozen=True, slots=True)
class UpdatePolicy:
    """Seconds, and what follows when they have passed. The settings that it is made from explain each."""

    action_timeout: float = 120.0
    daemon_reload_timeout: float = 90.0
    settle: float = 10.0
    verify_timeout: float = 300.0
    lease_retry: float = 15.0
    inhibitor_wait: float = 3600.0
    # One short call to logind each time.
    inhibitor_retry: float = 2.0
    inhibitor_override: bool = True
    warn_users: float = 60.0
    reboot_grace: float = 600.0
    may_reboot: bool = True
    revert: bool = True
    drain_timeout: float = 3600.0
    # Reboot after drain_timeout. If False: uncordon and try again later.
    drain_or_reboot: bool = True
    boot_cover: float = 1800.0
    # An entry for a unit that exists nowhere is an error, instead of a warning.
    strict_units: bool = False
    # Wait for a service of this host that does not answer, before the host is reported as degraded.
    service_wait: float = 1800.0


@dataclass(frozen=True, slots=True)
class Takeover:
    """Why an update that wrote nothing yet is not wanted any more. ``successor`` names the config that is desired
    instead; "" where the host has that already, or there is none. Not ``usable``: that config is invalid."""

    reason: str
    message: str
    successor: str = ""
    usable: bool = True


@dataclass(frozen=True, slots=True)
class Basis:
    """What an update begins from: the config in effect, and how the host differed from its current config, by entry.

    ``wanted`` are the differences that the new config has, too. ``restored`` is what comes back at paths that leave the
    config.
    """

    config: MachineConfig
    drift: Mapping[str, str] = field(default_factory=dict)
    wanted: frozenset[str] = frozenset()
    restored: Mapping[str, FileTreeEntry] = field(default_factory=dict, repr=False)


@dataclass(slots=True)
class Update:
    """An update under way. ``record`` is replaced as it goes, and saved before anything relies on it."""

    record: Record
    new: MachineConfig
    plan: Plan
    writes: tuple[WriteStep, ...] = ()
    acts: tuple[ActStep, ...] = ()
    # The reload or restart of nodeagent.service itself, which follows the update.
    own: ActStep | None = None
    # Number of the current step, from 1, for the progress.
    index: int = 0
    # Steady time of the last check of the lease.
    lease_checked_at: float = float("-inf")
    # Called for each file and each part of a verification; see update.course.BY_PROGRESS.
    progressed: Callable[[], None] = lambda: None
    # Whether the phase is repeated because a service of the host did not answer.
    repeated: bool = False
    takeover: Takeover | None = None
    # An operator cancelled it, or another config takes its place before the reboot. No reboot is requested then.
    cancelled: Takeover | None = None
    # The reboot is requested: from here on nothing cancels the update. Decided together with ``cancelled``, in
    # ``reboot``.
    committed: bool = False
    # Digest of the new config. The record drops it if nothing was written.
    digest: str = ""
    # Whether logind accepted the last requested reboot.
    reboot_accepted: bool = False
    # None for an update that is resumed.
    basis: Basis | None = None
    # What ``Run.show`` has shown.
    shown: set[str] = field(default_factory=set)
    # The last message about each failure that stops nothing, by its subject.
    failures: dict[str, str] = field(default_factory=dict)
    # Notes of the guards about the new OS, for a plan.
    target_notes: tuple[str, ...] = ()
    # Digest of the config that was desired when a requested reboot began; None for any other update, or if unknown.
    beside: str | None = None
    # Entries whose units systemd cannot enable, or that exist nowhere.
    unit_warnings: tuple[Problem, ...] = ()
    # How much of the current config it removes.
    removal: Removal = field(default_factory=Removal)

    def __post_init__(self) -> None:
        self.digest = self.record.to_digest
        self.writes = tuple(step_from_pair(*pair) for pair in self.record.writes)
        steps = act_steps(self.plan)
        # A restart of the agent within its update would end the process before the record has it as done.
        self.acts = tuple(step for step in steps if step_unit(step) != OWN_UNIT)
        own = [step for step in steps if step_unit(step) == OWN_UNIT]
        self.own = own[0] if own else None

    @property
    def static_pods(self) -> tuple[RestartStaticPod, ...]:
        """The replacements of static pods, which precede the reboot of a plan that has one."""
        return tuple(step for step in self.acts if isinstance(step, RestartStaticPod))

    @property
    def reboots(self) -> bool:
        """Whether the plan has a reboot."""
        return any(isinstance(step, Reboot) for step in self.acts)

    @property
    def count(self) -> int:
        return len(self.writes) + len(self.acts)

    @property
    def target(self) -> OsTarget | None:
        """None: this update leaves the OS as it is."""
        return target_from_dict(self.record.os.target) if self.record.os.target is not None else None

    @property
    def desired_digest(self) -> str:
        """Digest of the desired config for which this update began."""
        return self.record.safe_for or self.digest

    @property
    def ended(self) -> bool:
        """Whether its end was reported before, and it only gives back what it still holds."""
        return isinstance(self.record.leg, Unreleased)

    def progress(self, step: Step) -> StepProgress:
        index = min(self.index, self.count)
        percent = round(100 * max(0, index - 1) / self.count) if self.count else 100
        return StepProgress(describe(step), index, self.count, percent, step_id(step))

    def note(self, ports: Ports, event: UpdateEvent) -> None:
        """Add an event to the trail, which the next save of the record keeps."""
        trail = trail_fold.fold(self.record.trail, displayable(event), moment(ports))
        self.mark(trail=trail)

    def narrate(self, ports: Ports, event: OfUpdate[P], *args: P.args, **kwargs: P.kwargs) -> None:
        """Emit an event of this update, and add it to the trail; the arguments are those of its class."""
        made = event(context_of(ports, self.record, self.record.phase), *args, **kwargs)
        self.note(ports, made)
        ports.reporter.emit(made)

    def check_units(self) -> None:
        """Raise ``InvalidInput`` (``UnitMissing``) for entries without a unit that systemd could enable."""
        if self.unit_warnings:
            reason = Reason.UNIT_MISSING
            name = self.record.to_name
            raise InvalidInput(f"{name} was refused", reason=reason, hint=reason.hint, problems=self.unit_warnings)

    def add_notes(self, *notes: str) -> None:
        """Keep ``notes`` for the history, each once."""
        self.mark(notes=tuple(dict.fromkeys((*self.record.notes, *notes))))

    def moved(self, record: Record) -> None:
        """Take the record of another state. Only the keeper moves it."""
        self.record = record

    async def save(self, ports: Ports) -> None:
        await ports.store.save(self.record)

    def mark(self, **changes: Any) -> None:
        """Replace data of the record. The next save keeps them."""
        self.record = replace(self.record, **changes)

    def change_leg(self, **changes: Any) -> None:
        """Replace data of the leg. Only ``update.record.advance`` goes to another leg."""
        self.mark(leg=replace(self.record.leg, **changes))

    def change_os(self, **changes: Any) -> None:
        """Replace data about the OS in the record."""
        self.mark(os=replace(self.record.os, **changes))


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt of a phase of ``update``.

    ``random`` is a number from 0 to 1 at each call. ``wake`` is set when the desired config may have changed.
    ``superseded`` returns whether there is a newer desired config than that of the update. ``safe_first`` returns
    whether parts of the config are to be applied first, because of an error that blocks the rest. ``overdue``: a
    service of the host has not answered for so long that the host is degraded.
    """

    ports: Ports
    policy: UpdatePolicy
    update: Update
    wake: asyncio.Event
    superseded: Callable[[Update], Awaitable[bool]]
    safe_first: Callable[[Update, AgentError], Awaitable[bool]]
    random: Callable[[], float]
    overdue: bool = False

    @property
    def record(self) -> Record:
        return self.update.record

    @property
    def may_reboot(self) -> bool:
        """Whether the settings, and the operator who requested the update, allow a reboot."""
        return self.policy.may_reboot and not (self.hold is not None and self.hold.no_reboot)

    @property
    def hold(self) -> Hold | None:
        """What an operator requested about this update."""
        return self.record.hold

    async def save(self) -> None:
        await self.update.save(self.ports)

    def narrate(self, event: OfUpdate[P], *args: P.args, **kwargs: P.kwargs) -> None:
        self.update.narrate(self.ports, event, *args, **kwargs)

    def show(self, message: str) -> None:
        """Show what the phase does now: once for each update, because a repetition must not hide what it waits for."""
        if message not in self.update.shown:
            self.update.shown.add(message)
            self.narrate(PhaseEntered, message)

    def report_failure(self, subject: str, message: str, reason: AnyReason) -> None:
        """Report a failure that stops nothing: once for each subject in the journal, the last one in the history."""
        reported = self.update.failures
        if subject not in reported:
            self.narrate(Warned, message, reason)
        # The message may differ each time, so the last one replaces the previous one.
        others = [note for note in self.record.notes if note != reported.get(subject)]
        reported[subject] = message
        self.update.mark(notes=(*dict.fromkeys(others), message))

    async def newer(self) -> bool:
        """Return whether another config is desired by now. Reads it only when it may have changed."""
        if not self.wake.is_set():
            return False
        self.wake.clear()
        return await self.superseded(self.update)


def moment(ports: Ports) -> Moment:
    return Moment(ports.clock.now(), ports.power.boot_id(), ports.clock.monotonic())


def context_of(ports: Ports, record: Record, phase: Phase) -> UpdateContext:
    """``phase`` is the one to report."""
    return UpdateContext(
        phase,
        record.update_id,
        record.from_name,
        record.to_name,
        ports.power.boot_id(),
        record.since,
        record.failed_unit,
        record.reboot_kind if phase is Phase.REBOOTING else None,
    )


def narrate(
    ports: Ports,
    record: Record,
    event: Callable[Concatenate[UpdateContext, P], Event],
    *args: P.args,
    **kwargs: P.kwargs,
) -> None:
    """Emit an event about a record without an update under way; the arguments are those of its class."""
    ports.reporter.emit(event(context_of(ports, record, record.phase), *args, **kwargs))


def time_of(ports: Ports, deadline: float) -> str:
    """RFC 3339, in whole seconds, of a time on the steady clock."""
    return add_seconds(ports.clock.now(), deadline - ports.clock.monotonic()).partition(".")[0] + "Z"


def progress_of(ports: Ports, update: Update) -> Progress:
    """Reports each change of the words once."""
    reported = Once[str]()

    def report(words: str, deadline: float) -> None:
        if reported.is_new(words):
            update.narrate(ports, PhaseEntered, f"{words} until {time_of(ports, deadline)}")

    return report
