# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class MaintenanceReason(ReasonEnum):
    # fmt: off
    NO_MAINTENANCE = "NoMaintenance", Kind.REFUSED, "nothing to stop; nodeagent lease show names the lease holder"
    MAINTENANCE_ENDING = "MaintenanceEnding", Kind.REFUSED, "the agent retries; nodeagent maintenance status shows what it is waiting for"
    BAD_DURATION = "BadDuration", Kind.INPUT, "use 90s, 30min, 2h or 3d, or omit it to keep maintenance until it is stopped"
    BAD_TEXT = "BadText", Kind.INPUT, "write reason and requester as one line of 500 characters at most, without control characters"
    NO_CLUSTER = "NoCluster", Kind.REFUSED, "omit --drain: only a cluster can move pods, and this host is in none"
    POWER_OFF_FAILED = "PowerOffFailed", Kind.REFUSED, "journalctl -u systemd-logind shows the error; run systemctl poweroff, or start again"
    NO_REASON = "NoReason", Kind.INPUT, "give a reason: nodeagent maintenance start --reason TEXT"
    # fmt: on
