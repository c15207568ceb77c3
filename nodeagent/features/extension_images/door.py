# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from typing import Final

from nodeagent.door import Base, Door, Feature
from nodeagent.features.extension_images.reasons import ExtensionImageReason
from nodeagent.features.extension_images.settings import ExtensionImageSettings


def _open(base: Base) -> Feature:
    from nodeagent.features.extension_images.cache import ImageCache
    from nodeagent.features.extension_images.guard import ImageGuard

    cache = ImageCache(base.settings.of(ExtensionImageSettings))
    guard = ImageGuard(cache, base.store, base.units, base.load)
    return Feature(
        use=lambda settings: cache.use(settings.of(ExtensionImageSettings)), guard=guard, at_rest=guard.prune
    )


DOOR: Final = Door(
    title="Extension images",
    page="usage/extension-images.md",
    settings=(ExtensionImageSettings,),
    reasons=ExtensionImageReason,
    open=_open,
)
