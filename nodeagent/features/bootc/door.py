# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from typing import Final

from nodeagent.door import Door
from nodeagent.features.bootc.reasons import BootcReason

DOOR: Final = Door(
    title="bootc",
    page="usage/update-the-os.md",
    reasons=BootcReason,
)
