# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from nodeagent.door import Base, Door, Feature
from nodeagent.features.fence.events import VIEWS
from nodeagent.features.fence.reasons import FenceReason
from nodeagent.features.fence.settings import FenceSettings
from nodeagent.features.fence.status import PARTS
from nodeagent.host.dbus.client import Bus


async def _recover(bus: Bus) -> None:
    from nodeagent.features.fence.host_fence import recover

    # The limits of a killed agent slow the host down as long as they are set.
    await recover(bus)


def _open(base: Base) -> Feature:
    from nodeagent.features.fence.guard import FenceGuard
    from nodeagent.features.fence.host_fence import HostFence

    settings = base.settings
    fence = HostFence(base.bus, settings.of(FenceSettings), base.clock, Path(settings.state_dir))
    return Feature(use=lambda changed: fence.use(changed.of(FenceSettings)), guard=FenceGuard(fence))


DOOR: Final = Door(
    title="I/O fence",
    page="explanation/fence.md",
    settings=(FenceSettings,),
    reasons=FenceReason,
    events=VIEWS,
    status=PARTS,
    recover=_recover,
    open=_open,
)
