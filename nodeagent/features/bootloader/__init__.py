# SPDX-License-Identifier: Apache-2.0
"""The bootloader, on hosts with bootupd: whether it starts the kernel of a new OS, and its update."""

from __future__ import annotations

from typing import Final

from nodeagent.commands import PlanLines, StatusRows

ROWS: Final = (StatusRows("bootloader", f"{__name__}.cli", after="next boot"),)
PLAN_LINES: Final = (PlanLines("bootloader", f"{__name__}.cli", after="staged OS"),)
