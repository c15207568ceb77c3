# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from typing import Final

from nodeagent.door import Base, Door, Feature
from nodeagent.features.uncordon.degraded_node import VIEWS, DegradedNode
from nodeagent.features.uncordon.settings import UncordonSettings
from nodeagent.settings.schema import Settings


def _open(base: Base) -> Feature:
    node = DegradedNode(base.ports, base.wake, on=base.settings.of(UncordonSettings).uncordon_degraded)

    def use(settings: Settings) -> None:
        node.on = settings.of(UncordonSettings).uncordon_degraded

    return Feature(use=use, sinks=(node.sink,), at_rest=node.rest)


DOOR: Final = Door(
    title="Uncordon of a degraded node",
    page="usage/uncordon.md",
    settings=(UncordonSettings,),
    events=VIEWS,
    open=_open,
)
