"""Maintenance as data: a person has this node, nothing of ours disrupts it, and what was asked for beside that.

It is kept in the store, apart from the lease: the lease says who may disrupt the node now, this says what a person
wants, also while the lease is somebody else's, the cluster does not answer, or the host is off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from nodeagent.core.boot import kernel_boot

__all__ = [
    "MAINTENANCE",
    "POWER_OFF_TRIES",
    "Maintenance",
    "MaintenanceState",
    "from_dict",
    "is_maintenance",
    "later",
    "left",
    "of_lease",
    "to_dict",
]

MAINTENANCE = "maintenance"
"""Kind of the operation of a lease that a person holds. The operation itself has an id behind it: one that was taken
away in the cluster is over, and the next one is another."""

POWER_OFF_TRIES = 3
"""How often a power-off that did not come is asked for again before we say that this host does not go off."""

OLDEST_ID = ""  # of a maintenance that was begun before it had ids


class MaintenanceState(StrEnum):
    PLANNED = "planned"  # waits for the lease
    UNDER_WAY = "under way"
    DRAINING = "draining"
    POWERING_OFF = "powering off"
    ENDING = "ending"  # what is left to do is giving back


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Times are RFC 3339 in UTC. ``until`` is "" where only a person ends it. ``requester`` is who wants it, and who
    asked for it on this host if that is somebody else."""

    id: str
    requester: str
    reason: str
    since: str  # asked for
    until: str = ""
    began: str = ""  # the lease is ours since; "" while it is planned
    drain: bool = False
    drained: str = ""  # when
    drain_by: str = ""  # when the drain is given up
    power_off: bool = False
    off_boot: str = ""  # the boot that was asked to end; another one is the way back up
    tries: int = 0  # of the power-off
    problem: str = ""  # why the drain or the power-off was given up, as REASON: words
    ended: str = ""  # why it is over although something of it is still to be given back

    @property
    def operation(self) -> str:
        return f"{MAINTENANCE}.{self.id}" if self.id else MAINTENANCE

    @property
    def words(self) -> str:
        return f"{self.requester}: {self.reason}"

    def goes_off(self, boot_id: str) -> bool:
        """Whether the power-off is still to come. A host that came back is not sent off again; one whose userspace
        alone was started again was never off."""
        asked = kernel_boot(self.off_boot)
        return self.power_off and not self.problem and asked in ("", kernel_boot(boot_id))

    def drains(self) -> bool:
        return self.drain and not self.drained and not self.problem

    def state(self, boot_id: str) -> MaintenanceState:
        if self.ended:
            return MaintenanceState.ENDING
        if not self.began:
            return MaintenanceState.PLANNED
        if self.drains():
            return MaintenanceState.DRAINING
        return MaintenanceState.POWERING_OFF if self.goes_off(boot_id) else MaintenanceState.UNDER_WAY

    def again(self, *, until: str, drain: bool, power_off: bool) -> Maintenance:
        """The same person asks once more: the end is the new one, what was not asked for before is added, and what was
        given up is tried again. Reason and beginning stay."""
        return replace(
            self,
            until=until,
            drain=self.drain or drain,
            power_off=power_off,
            off_boot="",
            tries=0,
            problem="",
            drain_by="",
        )


def is_maintenance(operation: str) -> bool:
    return operation.partition(".")[0] == MAINTENANCE


def of_lease(operation: str, name: str, reason: str, since: str) -> Maintenance:
    """What a lease says that was taken for a maintenance before there was a note of it."""
    return Maintenance(operation.partition(".")[2] or OLDEST_ID, name, reason, since, began=since)


def later(now: str, seconds: float) -> str:
    when = datetime.fromisoformat(now) + timedelta(seconds=seconds)
    return when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def left(until: str, now: str) -> float | None:
    """Seconds, below 0 when it is over; None where nothing ends it by itself."""
    return (datetime.fromisoformat(until) - datetime.fromisoformat(now)).total_seconds() if until else None


def to_dict(maintenance: Maintenance) -> dict[str, Any]:
    return asdict(maintenance)


def from_dict(data: Mapping[str, Any]) -> Maintenance:
    """Raises ``TypeError`` or ``ValueError`` on anything else. Unknown keys come from a newer agent."""
    known = {key: value for key, value in data.items() if key in Maintenance.__dataclass_fields__}
    made = Maintenance(**known)
    example = Maintenance("", "", "", "")
    for name, value in asdict(made).items():
        if type(value) is not type(getattr(example, name)):
            raise ValueError(f"{name} of a maintenance has the wrong type")
    for time in (made.since, made.until, made.began, made.drained, made.drain_by):
        if time and datetime.fromisoformat(time).tzinfo is None:
            raise ValueError("a time of a maintenance has no zone")
    return made
