# SPDX-License-Identifier: Apache-2.0
"""Times at which an update may begin: weekly windows of the settings, and the time that an operator requests."""

from __future__ import annotations

from typing import Final

from nodeagent.commands import Option

OPTIONS: Final = (
    Option(
        "--at",
        "TIME",
        "begin at 02:00, 'tomorrow 02:00' or 2026-11-24T02:00, or in the window 'sat 02:00 60' or NAME",
        "nodeagent.features.windows.cli",
        takes=(("not_before", "RFC 3339"), ("window", "as in `windows.open`")),
        starts=True,
    ),
)
