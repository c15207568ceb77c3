# SPDX-License-Identifier: Apache-2.0
"""Maintenance: an operator has this host for himself, drained or powered off on request, and every update waits."""

from __future__ import annotations

from typing import Final

from nodeagent.commands import Command, StatusRows

COMMANDS: Final = (
    Command("maintenance", "block disruptions of this host, for maintenance", f"{__name__}.cli", after="verify"),
)
ROWS: Final = (StatusRows("maintenance", f"{__name__}.cli", after="lease", delays=True),)
