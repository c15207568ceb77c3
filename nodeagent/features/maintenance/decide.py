# SPDX-License-Identifier: Apache-2.0
"""Maintenance as data: what an operator requested for this host, and how far it is.

It is in the store, apart from the lease. The lease says who may disrupt the node now; this says what the operator
wants, also while another holder has the lease, the API server is down, or the host is off.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from nodeagent import typed
from nodeagent.core.boot import kernel_boot
from nodeagent.core.coordination.operations import BY_OPERATOR
from nodeagent.errors import InvalidInput, Terminal
from nodeagent.features.maintenance.reasons import MaintenanceReason
from nodeagent.reasons import Reason

# The name of the maintenance in the store.
NOTE: Final = "maintenance"

# How often a power-off is requested before it has failed.
POWER_OFF_TRIES = 3

# Seconds; a longer maintenance is probably a typing error.
LONGEST = 366 * 86400.0
# Characters of a reason, which is in every status and in an annotation.
MAX_TEXT = 500


class MaintenanceState(StrEnum):
    # It waits for the lease.
    PLANNED = "planned"
    UNDER_WAY = "under way"
    DRAINING = "draining"
    POWERING_OFF = "powering off"
    # Only the release is left.
    ENDING = "ending"


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Times are RFC 3339 in UTC. ``until`` is "" without an end. ``requester`` also names the user who made the
    request on this host, if that is another one."""

    id: str
    requester: str
    reason: str
    # Time of the request.
    since: str
    until: str = ""
    # Time at which the lease was acquired; "" while it is planned.
    began: str = ""
    drain: bool = False
    # Time at which the node was empty; "" before that.
    drained: str = ""
    # Deadline of the drain.
    drain_by: str = ""
    power_off: bool = False
    # The boot that the power-off ends; a later one is the way back up.
    off_boot: str = ""
    # Requests of the power-off.
    tries: int = 0
    # Why the drain or the power-off was given up: the text of the cause.
    problem: str = ""
    # Why it is over, while its release is not complete.
    ended: str = ""

    @property
    def operation(self) -> str:
        return f"{BY_OPERATOR}.{self.id}"

    @property
    def words(self) -> str:
        return f"{self.requester}: {self.reason}"

    def goes_off(self, boot_id: str) -> bool:
        """Return whether the power-off is still to come."""
        # A soft reboot is not the way back up: the host was not off.
        requested = kernel_boot(self.off_boot)
        return self.power_off and not self.problem and requested in ("", kernel_boot(boot_id))

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
        """Return the maintenance after another request of the same operator.

        It ends at the new time, adds what was not requested before, and retries what was given up.
        """
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


@dataclass(frozen=True, slots=True)
class MaintenanceRequest:
    """``seconds`` is 0 for a maintenance without an end. ``wait``: if another holder has the lease, the maintenance
    begins when it is free, before any update."""

    reason: str
    requester: str = ""
    seconds: float = 0.0
    drain: bool = False
    power_off: bool = False
    wait: bool = False

    def check(self) -> None:
        """Raise ``InvalidInput`` (``NoReason``, ``BadDuration``, ``BadText``)."""
        if not self.reason.strip():
            raise InvalidInput("a reason is required", reason=MaintenanceReason.NO_REASON)
        if not 0 <= self.seconds <= LONGEST:
            raise InvalidInput(
                f"a maintenance lasts {LONGEST / 86400:.0f} days at most", reason=MaintenanceReason.BAD_DURATION
            )
        for text in (self.reason, self.requester):
            if len(text) > MAX_TEXT or not text.isprintable():
                raise InvalidInput(f"one line of {MAX_TEXT} characters at most", reason=MaintenanceReason.BAD_TEXT)


def held_message(current: Maintenance) -> str:
    """Return the message with which other operations are refused."""
    since = current.began or current.since
    until = f" until {current.until}" if current.until else ""
    state = "holds the lease on this host" if current.began else "has requested the lease on this host"
    return f"{current.requester} {state} since {since}{until} for maintenance ({current.reason})"


def of_lease(operation: str, name: str, reason: str, since: str) -> Maintenance:
    """Return the maintenance of a lease of which nothing else is stored."""
    return Maintenance(operation.partition(".")[2], name, reason, since, began=since)


def to_text(maintenance: Maintenance) -> str:
    """Return the maintenance as text for the store."""
    return msgspec.json.encode(maintenance, order="sorted").decode()


def from_text(text: str) -> Maintenance | None:
    """Return the maintenance that ``to_text`` wrote; None for "". Raises ``Terminal`` (``StoreCorrupt``)."""
    if not text:
        return None
    try:
        # Keys of a newer agent are dropped.
        stored = typed.from_json(text, Maintenance)
        for time in (stored.since, stored.until, stored.began, stored.drained, stored.drain_by):
            # Python raises an error when a time without a zone is compared with one that has a zone.
            if time and datetime.fromisoformat(time).tzinfo is None:
                raise ValueError("a time of it has no zone")
    except ValueError as error:
        raise Terminal(f"the stored maintenance is damaged: {error}", reason=Reason.STORE_CORRUPT) from error
    return stored
