# SPDX-License-Identifier: Apache-2.0
"""The status. `nodeagent status` without a daemon fills it from the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from nodeagent.core.boot import RebootKind
from nodeagent.core.plan.deployment import Deployment
from nodeagent.core.plan.os_changes import OsChanges
from nodeagent.reasons import Reason
from nodeagent.update.history.lasting import Partial
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.events import StatusProblem, StepProgress
from nodeagent.update.record import FailedUnit, Record
from nodeagent.update.states import Phase

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Status:
    phase: Phase = Phase.IDLE
    reason: str = ""
    message: str = ""
    # The part of the message for those who are sent each change; "": all of it.
    brief: str = ""
    since: str = ""
    current: str = ""
    desired: str = ""
    # Empty until the daemon has read the store.
    current_digest: str = ""
    desired_digest: str = ""
    # Name of the config of the update under way, which need not be the desired one.
    target: str = ""
    # The identity of the boot, see core.boot.
    boot_id: str = ""
    update_id: str = ""
    # The kind of the reboot that the update requests, in the phase Rebooting.
    reboot: RebootKind | None = None
    step: StepProgress | None = None
    backend: str = "local"
    lease: Holder | None = None
    deployments: Sequence[Deployment] = ()
    # None without a staged deployment, or before it was compared with the booted one.
    os_changes: OsChanges | None = None
    # Whether the node was drained for the current update.
    drained: bool = False
    # The safe parts of the desired config that are applied, and what waits.
    partial: Partial | None = None
    problems: Sequence[StatusProblem] = ()
    # The unit that ``reason`` is about.
    failed_unit: FailedUnit | None = None
    # Of features, by their class.
    parts: Mapping[type[Any], Any] = field(default_factory=dict)

    def part(self, kind: type[P]) -> P | None:
        """Return the part of this class, or None without one."""
        value: P | None = self.parts.get(kind)
        return value

    def with_part(self, value: object) -> Status:
        """Return the status with ``value`` in place of the part of its class."""
        return replace(self, parts={**self.parts, type(value): value})

    def without_part(self, kind: type[Any]) -> Status:
        return replace(self, parts={other: value for other, value in self.parts.items() if other is not kind})

    @property
    def goal(self) -> str:
        """The config that the current update applies, or the desired one."""
        return self.target or self.desired

    @property
    def reboot_required(self) -> bool:
        """Whether the host is about to reboot, or a staged deployment or an update waits for a reboot by an admin."""
        requested = self.phase is Phase.REBOOTING or self.reason == Reason.REBOOT_REQUIRED
        return requested or any(deployment.staged and not deployment.locked for deployment in self.deployments)


def recorded_status(record: Record, current: str, digest: str) -> Status:
    """Return the status as the record has it. ``current`` and ``digest`` are the name and digest of the current config.

    The boot is that in which the record was written.
    """
    return Status(
        phase=record.phase,
        reason=record.reason,
        message=record.message,
        since=record.since,
        current=current,
        desired=record.to_name or current,
        current_digest=digest,
        target=record.to_name if record.phase not in (Phase.IDLE, Phase.DEGRADED) else "",
        boot_id=record.boot_id,
        update_id=record.update_id,
        partial=record.lasting.partial,
        failed_unit=record.failed_unit if record.reason else None,
    )
