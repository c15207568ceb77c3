# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class MaintenanceReason(ReasonEnum):
    # fmt: off
    NO_MAINTENANCE = "NoMaintenance", Kind.REFUSED, "nothing to stop; nodeagent lease show names the lease holder", "No maintenance is under way."
    MAINTENANCE_ENDING = "MaintenanceEnding", Kind.REFUSED, "the agent retries; nodeagent maintenance status shows what it is waiting for", "The last maintenance has not given back everything yet."
    BAD_DURATION = "BadDuration", Kind.INPUT, "use 90s, 30min, 2h or 3d, or omit it to keep maintenance until it is stopped", "The duration of the maintenance has no valid form, or is too long."
    BAD_TEXT = "BadText", Kind.INPUT, "write reason and requester as one line of 500 characters at most, without control characters", "The reason or the requester is too long, or has characters that control a terminal."
    NO_CLUSTER = "NoCluster", Kind.REFUSED, "omit --drain: only a cluster can move pods, and this host is in none", "A drain was requested on a host that is in no cluster."
    POWER_OFF_FAILED = "PowerOffFailed", Kind.REFUSED, "journalctl -u systemd-logind shows the error; run systemctl poweroff, or start again", "The host did not go down after the request to power off."
    NO_REASON = "NoReason", Kind.INPUT, "give a reason: nodeagent maintenance start --reason TEXT", "A maintenance was requested without a reason for others to read."
    # fmt: on
