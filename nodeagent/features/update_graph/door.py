# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from typing import Final

from nodeagent.core.self_check import SelfCheck
from nodeagent.door import Base, Door, Feature, InstallationCheck
from nodeagent.features.update_graph.reasons import JumpReason
from nodeagent.features.update_graph.settings import GraphSettings
from nodeagent.settings.schema import Settings


def _open(base: Base) -> Feature:
    from nodeagent.features.update_graph.guard import JumpGuard
    from nodeagent.features.update_graph.jumps import HostJumps

    jumps = HostJumps(base.settings.of(GraphSettings))
    return Feature(use=lambda settings: jumps.use(settings.of(GraphSettings)), guard=JumpGuard(jumps))


async def _check_rules(_settings: Settings) -> SelfCheck:
    from nodeagent.features.update_graph.selfcheck import check_rules

    return await check_rules("update-path")


async def _check_graph(settings: Settings) -> SelfCheck:
    from nodeagent.features.update_graph.selfcheck import check_graph

    return await check_graph("reach.graph", settings.of(GraphSettings))


DOOR: Final = Door(
    title="Versions that no update may skip",
    page="usage/jumps.md",
    settings=(GraphSettings,),
    reasons=JumpReason,
    self_checks=(InstallationCheck("update-path", _check_rules), InstallationCheck("reach.graph", _check_graph)),
    open=_open,
)
