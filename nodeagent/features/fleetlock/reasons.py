# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class FleetLockReason(ReasonEnum):
    # fmt: off
    FLEET_LOCK_UNREACHABLE = "FleetLockUnreachable", Kind.UNREACHABLE, "check address, network and the FleetLock server; the agent retries", "The FleetLock server does not answer."
    FLEET_LOCK_REJECTED = "FleetLockRejected", Kind.FAULT, "correct the address or the group of the FleetLock server", "The FleetLock server does not accept the request."
    FLEET_LOCK_INVALID = "FleetLockInvalid", Kind.INPUT, "correct the setting: https://HOST/PATH, and a group of letters, digits, dots and dashes", "The settings of the FleetLock server have no valid form."
    # fmt: on
