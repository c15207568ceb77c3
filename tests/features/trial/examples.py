# SPDX-License-Identifier: Apache-2.0
"""What trials add to the tables of the base's tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from nodeagent.features.trial.decide import Trial
from nodeagent.features.trial.events import TrialBegun, TrialEnding, TrialKept, TrialNotKept
from nodeagent.update.ports.events import UpdateContext
from nodeagent.update.states import Phase

ABOUT: Final = UpdateContext(Phase.VERIFYING, current="worker-1", desired="worker-2")
TRIAL: Final = Trial(
    "u1", "d1", "worker-2", "worker-1", 600.0, "root", "2026-11-21T03:00:00.000Z", "boot-1", 100.0, 90.0
)
EVENTS: Final = (
    TrialBegun(ABOUT, TRIAL, "2026-11-21T03:10:00Z"),
    TrialEnding(ABOUT, TRIAL),
    TrialKept(ABOUT, replace(TRIAL, kept_by="jane")),
    TrialNotKept(ABOUT, TRIAL),
    TrialNotKept(ABOUT, replace(TRIAL, over=True, ended_by="jane")),
)
REQUESTS: Final = {"keep": ("Keep",)}
CHANGES: Final = ("Keep",)
