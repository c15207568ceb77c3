# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from typing import Final

from nodeagent.door import Base, Door, Feature
from nodeagent.features.safe_parts.settings import SafePartsSettings


def _open(base: Base) -> Feature:
    from nodeagent.features.safe_parts.offer import SafeParts, SafePartsGuard

    offer = SafeParts(base.settings.of(SafePartsSettings))
    return Feature(use=lambda settings: offer.use(settings.of(SafePartsSettings)), guard=SafePartsGuard(offer))


DOOR: Final = Door(
    title="Safe parts",
    page="usage/blocked.md",
    settings=(SafePartsSettings,),
    open=_open,
)
