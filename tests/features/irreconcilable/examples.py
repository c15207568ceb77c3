# SPDX-License-Identifier: Apache-2.0
"""An example of each kind of event of the feature."""

from __future__ import annotations

from typing import Final

from nodeagent.features.irreconcilable.events import SectionsLeftOut

EVENTS: Final = (SectionsLeftOut(("storage.disks",)),)
