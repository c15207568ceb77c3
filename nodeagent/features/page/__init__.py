# SPDX-License-Identifier: Apache-2.0
"""The course of an update as one HTML page."""

from __future__ import annotations

from typing import Final

from nodeagent.commands import Command

COMMANDS: Final = (
    Command(
        "report",
        "write the course of an update as one HTML page",
        "nodeagent.features.page.cli",
        after="logs",
        no_json="it writes a page, and nodeagent history show --json has the same data",
    ),
)
