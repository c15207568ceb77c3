# SPDX-License-Identifier: Apache-2.0
"""The event of the feature."""

from __future__ import annotations

from dataclasses import dataclass

from nodeagent.features.drift.decide import Drift
from nodeagent.update.ports.events import Event


@dataclass(frozen=True, slots=True)
class DriftChanged(Event):
    """``drift`` has the entries of this host that differ from the current config, whose name is ``config``."""

    config: str
    drift: Drift
    message: str
    reason: str = ""
