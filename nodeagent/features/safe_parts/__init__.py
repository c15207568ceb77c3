# SPDX-License-Identifier: Apache-2.0
"""The parts of a config that need no disruption, applied while the rest of it is blocked."""

from __future__ import annotations

from typing import Final

from nodeagent.commands import PlanLines

PLAN_LINES: Final = (PlanLines("parts", "", after="", of=f"{__name__}.decide"),)
