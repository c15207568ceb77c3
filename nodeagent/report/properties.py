# SPDX-License-Identifier: Apache-2.0
"""The typed properties of the D-Bus interface: the parts of the status that other programs use most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from nodeagent.reasons import hint
from nodeagent.report.status import Status


class TypedProperty(NamedTuple):
    """``signature`` is of D-Bus, ``about`` is for the reference."""

    signature: str
    about: str


# Every binding of D-Bus reads such properties and their changes, without the JSON of the whole status.
PROPERTIES: Final[Mapping[str, TypedProperty]] = {
    "Phase": TypedProperty("s", "a phase of `nodeagent status`"),
    "Reason": TypedProperty("s", "the reason of a wait or a failure, or empty"),
    "Message": TypedProperty("s", "the text for admins, or empty"),
    "Hint": TypedProperty("s", "what to do about the reason, or empty"),
    "Since": TypedProperty("s", "since when the phase lasts (RFC 3339)"),
    "Current": TypedProperty("s", "the name of the config that was applied and verified last, or empty"),
    "Desired": TypedProperty("s", "the name of the config that the host should have, or empty"),
    "Target": TypedProperty("s", "the name of the config of the update under way, or empty"),
    "UpdateId": TypedProperty("s", "the id of the update under way, or of the last one after a failure"),
    "Step": TypedProperty("s", "the step of the update, or empty"),
    "Percent": TypedProperty("u", "the progress of the step, 0 to 100"),
    "RebootRequired": TypedProperty("b", "the host is about to reboot, or has to reboot to take effect"),
    "LeaseHolder": TypedProperty("s", "who may disrupt the host, or empty"),
    "Maintenance": TypedProperty("s", "the state of the maintenance, or empty"),
    "DriftedEntries": TypedProperty("u", "the number of entries that differ from the current config"),
    "Problems": TypedProperty("a(sss)", "problems that an admin must fix: topic, reason and message of each"),
}


def properties_of(status: Status) -> dict[str, Any]:
    """Return the values of ``PROPERTIES``."""
    step, note = status.step, status.maintenance
    return {
        "Phase": str(status.phase),
        "Reason": status.reason,
        "Message": status.message,
        "Hint": hint(status.reason, status.failed_unit.name if status.failed_unit is not None else ""),
        "Since": status.since,
        "Current": status.current,
        "Desired": status.desired,
        "Target": status.target,
        "UpdateId": status.update_id,
        "Step": step.name if step is not None else "",
        # D-Bus has no null, so a missing value is 0 or empty.
        "Percent": step.percent if step is not None else 0,
        "RebootRequired": status.reboot_required,
        "LeaseHolder": status.lease.name if status.lease is not None else "",
        "Maintenance": str(note.state(status.boot_id)) if note is not None else "",
        "DriftedEntries": len(status.drift),
        "Problems": [[problem.topic, problem.reason, problem.message] for problem in status.problems],
    }
