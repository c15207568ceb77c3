# SPDX-License-Identifier: Apache-2.0
"""The settings of the feature."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta

from nodeagent.settings.cluster import OptionalPath, Url
from nodeagent.settings.part import Contradiction, Part
from nodeagent.settings.schema import Settings


class AlertSettings(Part, frozen=True, forbid_unknown_fields=True):
    """Alerts that must not fire when an update begins to drain or to stop this node.

    ``url``: address of a Prometheus, or of a server with its API (Thanos, Mimir, VictoriaMetrics); "" for none.

    ``query``: PromQL of which the result must be empty. The default leaves out warnings, and the alert of many
    installations that always fires to prove that alerting works.

    ``ca``: PEM file with the certificate authority of the server; "" for the authorities of the host.

    ``token_file``: file with a bearer token, read for each request; "" for none. It requires https.

    ``on_unreachable``: what to do if the server does not answer. hold: the update waits, because a monitoring that is
    down is a bad time for a disruption. go: it begins with a warning, for servers that run on the nodes themselves.
    """

    group = "alerts"

    url: Url = ""
    # One line, because messages quote it.
    query: Annotated[
        str, Meta(pattern=r"^[^\x00-\x1f]+$", max_length=2048, description="a query in PromQL, on one line")
    ] = 'ALERTS{alertstate="firing", severity="critical"}'
    ca: OptionalPath = ""
    # Short-lived tokens are replaced in place, so none is kept in memory.
    token_file: OptionalPath = ""
    on_unreachable: Literal["hold", "go"] = "hold"

    def contradictions(self, settings: Settings) -> Iterator[Contradiction]:  # noqa: ARG002
        if self.token_file and not self.url.startswith("https:"):
            message = "alerts.token_file needs an alerts.url with https: http would show the token to others"
            yield ("alerts.token_file", "alerts.url"), message
        if self.ca and not self.url.startswith("https:"):
            yield ("alerts.ca", "alerts.url"), "alerts.ca needs an alerts.url with https: http has no certificate"
