# SPDX-License-Identifier: Apache-2.0
"""The settings of the feature."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from nodeagent.settings.cluster import OptionalPath, Url
from nodeagent.settings.part import Contradiction, Part
from nodeagent.settings.schema import Settings

# The pattern is that of the FleetLock protocol; a server refuses other groups.
Group = Annotated[
    str, Meta(pattern=r"^[a-zA-Z0-9.-]+$", max_length=128, description="a group: letters, digits, . and -")
]


class FleetLockSettings(Part, frozen=True, forbid_unknown_fields=True):
    """How many hosts are updated at once, by a FleetLock server instead of a cluster.

    ``fleetlock``: address of a FleetLock server, as used by Zincati; "" for none.

    ``fleetlock_group``: FleetLock group of this host, for a server that gives each group of hosts its own slots (as
    ``identity.group`` of Zincati). default: the default of the protocol.

    ``fleetlock_ca``: PEM file with the certificate authority of the FleetLock server; "" for the authorities of the
    host.
    """

    group = "slots"
    needs_restart = True

    fleetlock: Url = ""
    fleetlock_group: Group = "default"
    fleetlock_ca: OptionalPath = ""

    def contradictions(self, settings: Settings) -> Iterator[Contradiction]:
        # Two counts of the same nodes could each wait for the other.
        if self.fleetlock and settings.cluster.configured:
            message = "slots.fleetlock is for hosts without a cluster, which has slots of its own"
            yield ("slots.fleetlock", "cluster.kubeconfig", "cluster.service_account"), message
        if self.fleetlock_ca and not self.fleetlock:
            yield ("slots.fleetlock_ca",), "slots.fleetlock_ca needs slots.fleetlock: without it no server is called"
        if self.fleetlock_group != "default" and not self.fleetlock:
            message = "slots.fleetlock_group needs slots.fleetlock: without it no server is called"
            yield ("slots.fleetlock_group",), message
        if self.fleetlock_ca and self.fleetlock.startswith("http:"):
            keys = ("slots.fleetlock_ca", "slots.fleetlock")
            yield keys, "slots.fleetlock_ca needs a slots.fleetlock with https: http has no certificate"
