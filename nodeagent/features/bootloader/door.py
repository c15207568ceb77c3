# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from functools import partial
from typing import Final

from nodeagent.door import Base, Door, Feature
from nodeagent.features.bootloader.events import PARTS, VIEWS
from nodeagent.features.bootloader.reasons import BootloaderReason
from nodeagent.features.bootloader.settings import BootloaderSettings


def _open(base: Base) -> Feature:
    from nodeagent.features.bootloader.bootupd import BootupdBootloader
    from nodeagent.features.bootloader.guard import BootloaderGuard

    guard = BootloaderGuard(BootupdBootloader(), base.settings.of(BootloaderSettings))
    # Without deployments there is no staged OS, whose bootloader could differ.
    os = base.ports.os
    return Feature(
        use=lambda settings: guard.use(settings.of(BootloaderSettings)),
        guard=guard,
        beside=[("the view of the bootloader", partial(guard.report, os))] if os is not None else (),
    )


DOOR: Final = Door(
    title="Bootloader",
    page="explanation/bootloader.md",
    settings=(BootloaderSettings,),
    reasons=BootloaderReason,
    events=VIEWS,
    status=PARTS,
    open=_open,
)
