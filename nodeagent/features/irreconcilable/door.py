# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from typing import Final

from nodeagent.door import Base, Door, Feature
from nodeagent.features.irreconcilable.events import PARTS, VIEWS
from nodeagent.features.irreconcilable.settings import ACCEPTABLE, IrreconcilableSettings


def _open(base: Base) -> Feature:
    from nodeagent.features.irreconcilable.guard import SectionsGuard

    guard = SectionsGuard(base.settings.of(IrreconcilableSettings), base.store, base.reporter, base.load)

    async def rest() -> None:
        await guard.look()

    return Feature(
        use=lambda settings: guard.use(settings.of(IrreconcilableSettings)),
        guard=guard,
        at_rest=rest,
        at_start=[("the sections that are left out", guard.look)],
    )


DOOR: Final = Door(
    title="Accepted sections",
    page="usage/accept-sections.md",
    settings=(IrreconcilableSettings,),
    events=VIEWS,
    status=PARTS,
    accepts=lambda settings: settings.of(IrreconcilableSettings).accept,
    acceptable=ACCEPTABLE,
    open=_open,
)
