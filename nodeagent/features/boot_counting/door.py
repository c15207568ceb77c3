# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from typing import Final

from nodeagent.core.self_check import SelfCheck
from nodeagent.door import Base, Door, Feature, InstallationCheck
from nodeagent.features.boot_counting.reasons import BootCountingReason
from nodeagent.features.boot_counting.settings import BootCountingSettings
from nodeagent.settings.schema import Settings


async def _check(settings: Settings) -> SelfCheck:
    from nodeagent.features.boot_counting.self_check import check_boots

    return await check_boots(settings.of(BootCountingSettings))


def _open(base: Base) -> Feature:
    # Without deployments no OS is new.
    if base.ports.os is None:
        return Feature()
    from nodeagent.features.boot_counting.counter import HostBootCounter
    from nodeagent.features.boot_counting.guard import BootCountingGuard

    def counter(settings: Settings) -> HostBootCounter:
        return HostBootCounter(enabled=settings.of(BootCountingSettings).count_boots == "auto")

    guard = BootCountingGuard(counter(base.settings))
    return Feature(use=lambda settings: guard.use(counter(settings)), guard=guard)


DOOR: Final = Door(
    title="Boot counting",
    page="explanation/boot-counting.md",
    settings=(BootCountingSettings,),
    reasons=BootCountingReason,
    self_checks=(InstallationCheck("boot.count", _check),),
    open=_open,
)
