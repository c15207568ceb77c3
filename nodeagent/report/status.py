# SPDX-License-Identifier: Apache-2.0
"""The status, as one object of the contract and as a line.

`nodeagent status` without a daemon fills it from the store. Modules of parts that the store does not have are imported
where they are used, which is half of the time that the command takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from nodeagent.core.boot import RebootKind, kernel_boot, soft_reboots
from nodeagent.core.coordination.drain import Remaining, is_blocked, remedy
from nodeagent.core.coordination.maintenance import MAINTENANCE, Maintenance, is_maintenance
from nodeagent.core.fence_view import FenceView
from nodeagent.core.plan.bootloader import BootloaderCheck, check_to_dict
from nodeagent.core.plan.deployment import Deployment
from nodeagent.core.plan.drift import Drift, describe_drift
from nodeagent.core.plan.os_changes import OsChanges, os_changes_to_dict
from nodeagent.reasons import Reason, documentation
from nodeagent.update.history.lasting import Partial
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.events import MemberProgress, StatusProblem, StepProgress
from nodeagent.update.record import FailedUnit, Record
from nodeagent.update.states import Phase

SCHEMA = "nodeagent/status/v1"


@dataclass(frozen=True, slots=True)
class Status:
    phase: Phase = Phase.IDLE
    reason: str = ""
    message: str = ""
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
    # None without bootupd, or before it was compared.
    bootloader: BootloaderCheck | None = None
    fence: FenceView | None = None
    # Remaining pods; None without a drain.
    remaining: Sequence[Remaining] | None = None
    # When the drain is given up; RFC 3339.
    drain_by: str = ""
    # What follows after the deadline, as text.
    drain_then: str = ""
    # Whether the node was drained for the current update.
    drained: bool = False
    maintenance: Maintenance | None = None
    # Text of the cause of the wait.
    maintenance_waits: str = ""
    drift: Drift = ()
    # The safe parts of the desired config that are applied, and what waits.
    partial: Partial | None = None
    etcd_member: MemberProgress | None = None
    problems: Sequence[StatusProblem] = ()
    # The unit that ``reason`` is about.
    failed_unit: FailedUnit | None = None

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


def line(status: Status) -> str:
    """Return the line of ``STATUS=``, which ``systemctl status`` shows."""
    parts = [str(status.phase)]
    if status.step is not None:
        parts.append(
            f"{status.step.name} ({status.step.index}/{status.step.count})" if status.step.count else status.step.name
        )
    if status.reason:
        parts.append(status.reason)
    if status.message:
        parts.append(status.message)
    elif status.phase is Phase.IDLE and status.current:
        parts.append(f"current config is {status.current}")
    if status.maintenance is not None:
        parts.append(f"maintenance {status.maintenance.state(status.boot_id)}, {status.maintenance.words}")
    if status.partial is not None:
        count, name = len(status.partial.waits), status.partial.name
        parts.append(f"{count} changes of {name} wait" if count > 1 else f"1 change of {name} waits")
    if status.drift:
        parts.append(f"drift: {describe_drift(status.drift)}")
    if status.problems:
        parts.append("problem: " + "; ".join(f"{problem.reason}: {problem.message}" for problem in status.problems))
    # systemd drops a notification of more than 4096 bytes, and a character has up to four.
    return ": ".join(parts)[:1000]


def _maintenance(status: Status) -> Mapping[str, Any] | None:
    """Return the maintenance as JSON data. ``state`` is a ``MaintenanceState``; ``message`` is what it waits for."""
    note = status.maintenance
    if note is None:
        return None
    return {
        "id": note.id,
        "state": str(note.state(status.boot_id)),
        "requester": note.requester,
        "reason": note.reason,
        "since": note.began or note.since,
        "until": note.until,
        "drain": note.drain,
        "drained": note.drained,
        "power_off": note.power_off,
        "message": status.maintenance_waits or note.problem or note.ended,
    }


def _drain(status: Status) -> Mapping[str, Any] | None:
    """Return the drain as JSON data: requester, reason, times, and remaining pods, blocked ones first."""
    if status.remaining is None:
        return None

    def pod_to_dict(pod: Remaining) -> Mapping[str, Any]:
        about = {"namespace": pod.namespace, "name": pod.name, "why": pod.why}
        return {**about, "blocked": is_blocked(pod), "hint": remedy(pod)}

    note = status.maintenance if status.phase is not Phase.DRAINING else None
    pods = sorted(status.remaining, key=lambda pod: not is_blocked(pod))
    return {
        "requester": note.requester if note is not None else "nodeagent",
        "reason": note.reason if note is not None else f"update to {status.goal}",
        "since": (note.began if note is not None else status.since),
        "deadline": status.drain_by,
        "then": status.drain_then,
        "remaining": [pod_to_dict(pod) for pod in pods],
    }


def _partial(partial: Partial | None) -> Mapping[str, Any] | None:
    """Return the blocked config as JSON data: what of it is applied, and what the rest waits for."""
    if partial is None:
        return None
    return {
        "config": partial.name,
        "digest": partial.desired,
        "since": partial.since,
        "reason": partial.cause.reason,
        "message": partial.cause.message,
        "applied": list(partial.applied),
        "waits": [{"change": change, "for": cause} for change, cause in partial.waits],
    }


def status_to_dict(status: Status, *, daemon: str) -> dict[str, Any]:
    """Return the ``nodeagent/status/v1`` object of the contract."""
    step: dict[str, Any] | None = msgspec.to_builtins(status.step)
    if step is not None:
        del step["id"]
    lease: Mapping[str, Any] | None = None
    if status.lease is not None:
        lease = {
            "backend": status.backend,
            "holder": status.lease.name,
            "operation": MAINTENANCE if is_maintenance(status.lease.operation) else status.lease.operation,
            "reason": status.lease.reason,
            "since": status.lease.since,
            "expires": status.lease.expires,
        }
    return {
        "schema": SCHEMA,
        "phase": str(status.phase),
        "reason": status.reason,
        "message": status.message,
        "documentation": documentation(status.reason),
        "since": status.since,
        "current": status.current,
        "desired": status.desired,
        "current_digest": status.current_digest,
        "desired_digest": status.desired_digest,
        "target": status.target,
        "boot_id": kernel_boot(status.boot_id),
        "soft_reboots": soft_reboots(status.boot_id),
        "update_id": status.update_id,
        "reboot": msgspec.to_builtins(status.reboot),
        "step": step,
        "deployments": [
            {
                "checksum": deployment.checksum,
                "version": deployment.version,
                "booted": deployment.booted,
                "staged": deployment.staged,
                "locked": deployment.locked,
                "digest": deployment.digest,
            }
            for deployment in status.deployments
        ],
        "os_changes": None if status.os_changes is None else os_changes_to_dict(status.os_changes),
        "bootloader": None if status.bootloader is None else check_to_dict(status.bootloader),
        "lease": lease,
        "drain": _drain(status),
        "fence": None if status.fence is None else status.fence.to_dict(),
        "maintenance": _maintenance(status),
        "drift": msgspec.to_builtins(list(status.drift)),
        "partial": _partial(status.partial),
        "etcd_member": msgspec.to_builtins(status.etcd_member),
        "failed_unit": msgspec.to_builtins(status.failed_unit),
        "problems": msgspec.to_builtins(list(status.problems)),
        "daemon": daemon,
    }
