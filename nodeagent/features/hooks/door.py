# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from typing import Final

from nodeagent.door import Base, Door, Feature
from nodeagent.features.hooks.reasons import HookReason
from nodeagent.features.hooks.settings import HookSettings


def _open(base: Base) -> Feature:
    from nodeagent.features.hooks.programs import Hooks

    hooks = Hooks(base.settings.of(HookSettings).timeout, base.reporter, base.clock, base.store)
    return Feature(
        use=lambda settings: hooks.use(settings.of(HookSettings).timeout),
        sinks=(hooks.sink,),
        at_start=[("hooks", hooks.load)],
        beside=[("the hooks of the admin", hooks.run)],
    )


DOOR: Final = Door(
    title="Hooks of the admin",
    page="usage/hooks.md",
    settings=(HookSettings,),
    reasons=HookReason,
    open=_open,
)
