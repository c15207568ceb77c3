"""What every phase of an update works with: the ports, the policy, and the update itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nodeagent.agent.coordination import Coordination
from nodeagent.agent.update.os_deployments import Os
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.units import OWN_UNIT
from nodeagent.core.coordination.windows import Schedule
from nodeagent.core.plan.change import Plan
from nodeagent.core.plan.deployment import OsTarget, target_from_dict
from nodeagent.core.plan.steps import (
    ActStep,
    Drain,
    Step,
    WriteStep,
    act_steps,
    describe,
    step_from_pair,
    step_id,
    step_unit,
)
from nodeagent.core.update.events import Event, EventKind, StepProgress
from nodeagent.core.update.legs import Leg, Unreleased
from nodeagent.core.update.phase import Phase
from nodeagent.core.update.ports.coordination import NodeDrainer
from nodeagent.core.update.ports.host import Clock, Files, HealthChecks, Reporter, Units, Users
from nodeagent.core.update.ports.store import HistoryEntry, Store
from nodeagent.core.update.ports.system import Fence, Power
from nodeagent.core.update.record import Record

__all__ = [
    "HOLDER",
    "Close",
    "Ports",
    "Promote",
    "Run",
    "Takeover",
    "Transition",
    "Update",
    "UpdatePolicy",
    "narrate",
]

HOLDER = "nodeagent"


@dataclass(frozen=True, slots=True)
class Ports:
    store: Store
    files: Files
    units: Units
    users: Users
    health: HealthChecks
    power: Power
    coordination: Coordination
    os: Os | None  # None: no deployments here, so nothing can change the OS
    node: NodeDrainer | None  # None: no cluster, so nothing to drain
    clock: Clock
    reporter: Reporter
    fence: Fence | None = None  # None: a staging writes without limits


@dataclass(frozen=True, slots=True)
class UpdatePolicy:
    """Seconds, and what follows when they have passed. The settings that it is made from explain each."""

    action_timeout: float = 120.0
    action_timeouts: Mapping[str, float] = field(default_factory=dict)  # by unit, instead of the general one
    daemon_reload_timeout: float = 90.0
    settle: float = 10.0
    verify_timeout: float = 300.0
    lease_retry: float = 15.0
    inhibitor_wait: float = 3600.0
    inhibitor_retry: float = 2.0  # one short call to logind each time
    inhibitor_override: bool = True
    warn_users: float = 60.0
    reboot_grace: float = 600.0
    may_reboot: bool = True
    revert: bool = True
    windows: Schedule | None = None  # None: an update may begin at any time
    drain_timeout: float = 3600.0
    drain_or_reboot: bool = True  # after that time; False: uncordon, and try again later
    boot_cover: float = 1800.0
    service_wait: float = 1800.0  # for a service of this host that does not answer, before that is reported as degraded


@dataclass(frozen=True, slots=True)
class Promote:
    """Make the config of the update the current one, and add ``entry`` to the history."""

    entry: HistoryEntry


@dataclass(frozen=True, slots=True)
class Close:
    """Add ``entry`` to the history. The current config stays as it is."""

    entry: HistoryEntry


@dataclass(frozen=True, slots=True)
class Transition:
    """Where a phase leads. ``leg`` None is the same leg. ``commit`` is stored in one transaction with the record."""

    phase: Phase
    leg: Leg | None = None
    reason: str = ""
    message: str = ""
    commit: Promote | Close | None = None


@dataclass(frozen=True, slots=True)
class Takeover:
    """Why an update that wrote nothing yet is not wanted any more. ``successor`` names the config that is desired
    instead; "" where the host has that already, or there is none."""

    reason: str
    message: str
    successor: str = ""


@dataclass(slots=True)
class Update:
    """An update under way. ``record`` is replaced as it goes, and saved before anything relies on it."""

    record: Record
    new: MachineConfig
    plan: Plan
    writes: tuple[WriteStep, ...] = ()
    acts: tuple[ActStep, ...] = ()
    own: ActStep | None = None  # a reload or restart of our own unit, which comes after the update
    index: int = 0  # of the step under way, from 1, for the progress
    lease_checked_at: float = float("-inf")  # steady time of the last check of the lease
    progressed: Callable[[], None] = lambda: None  # called for each file; see core.update.phase.BY_PROGRESS
    repeated: bool = False  # this phase is done again after a service of the host did not answer
    takeover: Takeover | None = None
    digest: str = ""  # of the config that it is to; the record forgets it when nothing was written
    reboot_accepted: bool = False  # logind took the reboot that was requested last

    def __post_init__(self) -> None:
        self.digest = self.record.to_digest
        self.writes = tuple(step_from_pair(*pair) for pair in self.record.writes)
        steps = [step for step in act_steps(self.plan) if not isinstance(step, Drain)]
        self.acts = tuple(step for step in steps if step_unit(step) != OWN_UNIT)
        own = [step for step in steps if step_unit(step) == OWN_UNIT]
        self.own = own[0] if own else None

    @property
    def count(self) -> int:
        return len(self.writes) + len(self.acts)

    @property
    def target(self) -> OsTarget | None:
        """None: this update leaves the OS as it is."""
        return target_from_dict(self.record.os.target) if self.record.os.target is not None else None

    @property
    def ended(self) -> bool:
        """Whether its end was reported before, and it only gives back what it still holds."""
        return isinstance(self.record.leg, Unreleased)

    def progress(self, step: Step) -> StepProgress:
        percent = round(100 * max(0, self.index - 1) / self.count) if self.count else 100
        return StepProgress(describe(step), min(self.index, self.count), self.count, percent)

    def change_leg(self, **changes: Any) -> None:
        """Replace data of the leg. Only ``core.update.record.advance`` goes to another leg."""
        self.record = replace(self.record, leg=replace(self.record.leg, **changes))

    def change_os(self, **changes: Any) -> None:
        """Replace data about the OS in the record."""
        self.record = replace(self.record, os=replace(self.record.os, **changes))


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt of a phase of ``update``.

    ``wake`` is set when the desired config may have changed. ``superseded`` returns whether there is a newer desired
    config than that of the update.
    """

    ports: Ports
    policy: UpdatePolicy
    update: Update
    wake: asyncio.Event
    superseded: Callable[[Update], Awaitable[bool]]

    @property
    def record(self) -> Record:
        return self.update.record

    def narrate(self, kind: EventKind, message: str = "", **more: Any) -> None:
        """Emit an event of this update. The keywords are those of ``narrate``."""
        narrate(self.ports, self.update, kind, message, **more)

    async def newer(self) -> bool:
        """Return whether another config is desired by now. Reads it only when it may have changed."""
        if not self.wake.is_set():
            return False
        self.wake.clear()
        return await self.superseded(self.update)


def narrate(
    ports: Ports,
    update: Update | None,
    kind: EventKind,
    message: str = "",
    *,
    reason: str = "",
    step: Step | None = None,
    seconds: float | None = None,
    record: Record | None = None,
    progress: StepProgress | None = None,
    phase: Phase | None = None,
    **fields: object,
) -> None:
    """Emit one event with the identity of the update under way; without one, with that of ``record``. ``phase`` takes
    the place of the one in the record."""
    record = update.record if update else record or Record()
    ports.reporter.emit(
        Event(
            kind,
            phase or record.phase,
            message,
            reason,
            update_id=record.update_id,
            current=record.from_name,
            desired=record.to_name,
            boot_id=ports.power.boot_id(),
            since=record.since,
            step=update.progress(step) if update and step else progress,
            step_id=step_id(step) if step else "",
            seconds=seconds,
            fields=fields,
        )
    )
