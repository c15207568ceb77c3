# SPDX-License-Identifier: Apache-2.0
"""The typed properties of the D-Bus interface: the parts of the status that other programs use most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from nodeagent.reasons import hint
from nodeagent.report.part_view import TypedProperty
from nodeagent.report.parts.registry import part_views
from nodeagent.report.status import Status

# Every binding of D-Bus reads such properties and their changes, without the JSON of the whole status.
_BASE: Final[Mapping[str, TypedProperty]] = {
    "Phase": TypedProperty("s", "a phase of `nodeagent status`", lambda status: str(status.phase)),
    "Reason": TypedProperty("s", "the reason of a wait or a failure, or empty", lambda status: status.reason),
    "Message": TypedProperty("s", "the text for admins, or empty", lambda status: status.message),
    # The hint of a failed unit names that unit.
    "Hint": TypedProperty(
        "s",
        "what to do about the reason, or empty",
        lambda status: hint(status.reason, status.failed_unit.name if status.failed_unit is not None else ""),
    ),
    "Since": TypedProperty("s", "since when the phase lasts (RFC 3339)", lambda status: status.since),
    "Current": TypedProperty(
        "s", "the name of the config that was applied and verified last, or empty", lambda status: status.current
    ),
    "Desired": TypedProperty(
        "s", "the name of the config that the host should have, or empty", lambda status: status.desired
    ),
    "Target": TypedProperty(
        "s", "the name of the config of the update under way, or empty", lambda status: status.target
    ),
    "UpdateId": TypedProperty(
        "s", "the id of the update under way, or of the last one after a failure", lambda status: status.update_id
    ),
    "Step": TypedProperty(
        "s", "the step of the update, or empty", lambda status: status.step.name if status.step is not None else ""
    ),
    "Percent": TypedProperty(
        "u",
        "the progress of the step, 0 to 100",
        lambda status: status.step.percent if status.step is not None else 0,
    ),
    "RebootRequired": TypedProperty(
        "b", "the host is about to reboot, or has to reboot to take effect", lambda status: status.reboot_required
    ),
    "LeaseHolder": TypedProperty(
        "s", "who may disrupt the host, or empty", lambda status: status.lease.name if status.lease is not None else ""
    ),
    "Problems": TypedProperty(
        "a(sss)",
        "problems that an admin must fix: topic, reason and message of each",
        lambda status: [[problem.topic, problem.reason, problem.message] for problem in status.problems],
    ),
}


def properties() -> Mapping[str, TypedProperty]:
    """Return the properties of the base, then those of the installed features."""
    # Those of features may come and go with a version. A client asks for each by its name.
    return {**_BASE, **{name: declared for view in part_views() for name, declared in view.properties.items()}}


def properties_of(status: Status) -> dict[str, Any]:
    """Return the values of ``properties``."""
    return {name: declared.value(status) for name, declared in properties().items()}
