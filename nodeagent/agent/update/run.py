"""What every phase of an update works with: the ports, the limits, and the update itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

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
from nodeagent.core.update.phase import Phase
from nodeagent.core.update.ports import (
    Clock,
    Fence,
    Files,
    HealthChecks,
    NodeDrainer,
    Power,
    Reporter,
    Store,
    Units,
    Users,
)
from nodeagent.core.update.record import Record

__all__ = ["HOLDER", "Limits", "Next", "Ports", "Takeover", "Update", "narrate"]

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
    fence: Fence | None = None  # None: what is staged writes as fast as it can


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits in seconds, and what to do when they have passed. The settings explain those that they set."""

    action_timeout: float = 120.0
    action_timeouts: Mapping[str, float] = field(default_factory=dict)  # by unit, instead of the general one
    # The generators of a large host take seconds, and PID 1 refuses a reload while it is busy.
    daemon_reload_timeout: float = 90.0
    settle: float = 10.0
    verify_timeout: float = 300.0
    # The interval of leader election: a thousand waiting nodes then send 70 requests per second to the API server.
    lease_retry: float = 15.0
    inhibitor_wait: float = 3600.0
    inhibitor_retry: float = 2.0  # one short call to logind; whoever ends the wait sees it go on
    inhibitor_override: bool = True
    warn_users: float = 60.0
    # From the time when logind accepts a reboot. Services may use their full stop timeout of 90 s each, and some stop
    # one after the other.
    reboot_grace: float = 600.0
    may_reboot: bool = True
    revert: bool = True
    windows: Schedule | None = None  # None: an update may begin at any time
    drain_timeout: float = 3600.0
    drain_or_reboot: bool = True  # when that is over; False: uncordon, and later again
    # The duration of the lease that is written before a reboot. It must last until the node is ready again, or other
    # controllers may fence a node that boots slowly. Self-tests of large servers take a quarter of an hour.
    boot_cover: float = 1800.0
    service_wait: float = 1800.0  # for a service of this host that does not answer, before that is reported as degraded


@dataclass(frozen=True, slots=True)
class Next:
    """Where a phase leads. ``save`` stores the record instead of the plain way, in one transaction with more."""

    phase: Phase
    reason: str = ""
    message: str = ""
    save: Callable[[Record], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True)
class Takeover:
    """Why an update that wrote nothing yet is not wanted any more. ``successor`` names the config that is desired
    instead; "" where the host has that already, or there is none."""

    reason: str
    message: str
    successor: str = ""


@dataclass(slots=True)
class Update:
    """An update under way. ``record`` is replaced as it goes; what is in it was saved before anybody relies on it."""

    record: Record
    new: MachineConfig
    plan: Plan
    writes: tuple[WriteStep, ...] = ()
    acts: tuple[ActStep, ...] = ()
    own: ActStep | None = None  # a reload or restart of our own unit, which comes after the update
    index: int = 0  # of the step under way, from 1, for people
    lease_checked_at: float = float("-inf")  # steady time of the last check of the lease
    progressed: Callable[[], None] = lambda: None  # called for each file; see core.phase.BY_PROGRESS
    repeated: bool = False  # this phase is done again after a service of the host did not answer
    takeover: Takeover | None = None
    ended: bool = False  # its end was reported before; it only gives back what it still holds

    def __post_init__(self) -> None:
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
        return target_from_dict(self.record.os_target) if self.record.os_target is not None else None

    def progress(self, step: Step) -> StepProgress:
        percent = round(100 * max(0, self.index - 1) / self.count) if self.count else 100
        return StepProgress(describe(step), min(self.index, self.count), self.count, percent)


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
    **fields: object,
) -> None:
    """One event, with everything that the update under way adds to it; without one, what is in ``record``."""
    record = update.record if update else record or Record()
    ports.reporter.emit(
        Event(
            kind,
            record.phase,
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
