# SPDX-License-Identifier: Apache-2.0
"""The status as one object of the contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from nodeagent.core.boot import kernel_boot, soft_reboots
from nodeagent.core.coordination.operations import BY_OPERATOR, is_by_operator
from nodeagent.core.plan.os_changes import os_changes_to_dict
from nodeagent.reasons import documentation
from nodeagent.report.parts.registry import part_views
from nodeagent.report.status import Status
from nodeagent.update.history.lasting import Partial

SCHEMA = "nodeagent/status/v1"


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


def _parts(status: Status) -> Mapping[str, Any]:
    """Return the parts of features by their keys."""
    parts = ((view, status.part(view.part)) for view in part_views())
    return {view.key: view.absent() if part is None else view.to_json(part, status) for view, part in parts}


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
            "operation": BY_OPERATOR if is_by_operator(status.lease.operation) else status.lease.operation,
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
        "lease": lease,
        **_parts(status),
        "partial": _partial(status.partial),
        "failed_unit": msgspec.to_builtins(status.failed_unit),
        "problems": msgspec.to_builtins(list(status.problems)),
        "daemon": daemon,
    }
