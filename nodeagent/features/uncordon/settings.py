# SPDX-License-Identifier: Apache-2.0
"""The settings of the feature."""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.settings.part import Contradiction, Part
from nodeagent.settings.schema import Settings


class UncordonSettings(Part, frozen=True, forbid_unknown_fields=True):
    """``uncordon_degraded``: whether to uncordon a node that an update left half-way and Degraded, once it has been
    ready for a minute and no unit of the update has failed. It keeps its lease and its slot, so that the rollout does
    not go on. False: such a node stays cordoned until a config is applied completely, because pods may depend on what
    failed.
    """

    group = "drain"

    uncordon_degraded: bool = False

    def contradictions(self, settings: Settings) -> Iterator[Contradiction]:
        if self.uncordon_degraded and not settings.cluster.configured:
            message = "drain.uncordon_degraded needs a cluster (cluster.kubeconfig): there is no node to uncordon"
            yield ("drain.uncordon_degraded",), message
