# SPDX-License-Identifier: Apache-2.0
"""Boots of a new OS that the boot loader counts, so that a kernel that does not start is given up; greenboot."""

from __future__ import annotations

from typing import Final

from nodeagent.commands import PlanLines

PLAN_LINES: Final = (PlanLines("boot_count", f"{__name__}.decide", after="the reboot"),)
