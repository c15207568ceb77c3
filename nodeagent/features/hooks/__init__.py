# SPDX-License-Identifier: Apache-2.0
"""Programs of the admin in /etc/nodeagent/hooks, which get an event when an update waits, begins, ends or fails."""

from __future__ import annotations

from typing import Final

from nodeagent.installed import AdminTree

TREES: Final = (AdminTree("hooks", f"{__name__}.decide"),)
