# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from typing import Final

from nodeagent.door import Base, Door, Feature
from nodeagent.features.mcd_import.reasons import ImportReason


def _open(base: Base) -> Feature:
    from nodeagent.features.mcd_import.adoption import Adoption

    return Feature(earlier_config=Adoption(base.store).config)


DOOR: Final = Door(
    title="Import from machine-config-daemon",
    page="usage/replace-machine-config-daemon.md",
    reasons=ImportReason,
    open=_open,
)
