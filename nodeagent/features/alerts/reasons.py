# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class AlertReason(ReasonEnum):
    # fmt: off
    ALERTS_FIRING = "AlertsFiring", Kind.REFUSED, "resolve the named alerts, or correct alerts.query; the update begins when its result is empty", "Alerts that the settings name are firing, so no update begins."
    ALERTS_UNREACHABLE = "AlertsUnreachable", Kind.UNREACHABLE, "check alerts.url from this host with curl; with alerts.on_unreachable: go no update waits for it", "The server of the alerts does not answer, so it is not known whether one is firing."
    ALERTS_REJECTED = "AlertsRejected", Kind.REFUSED, "correct alerts.url, alerts.query, alerts.ca or alerts.token_file; the update waits for that", "The server of the alerts does not accept the query."
    # fmt: on
