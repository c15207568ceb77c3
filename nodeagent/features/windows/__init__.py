# SPDX-License-Identifier: Apache-2.0
"""Times at which an update may begin: windows and freezes of the settings, and the time that an operator requests."""

from __future__ import annotations

from typing import Final

from nodeagent.commands import Command, Option

COMMANDS: Final = (
    Command(
        "windows",
        "list the next windows and freezes, and when this host begins in each",
        f"{__name__}.cli.windows",
        after="settings",
    ),
)
OPTIONS: Final = (
    Option(
        "--at",
        "TIME",
        "begin at 02:00, 'tomorrow 02:00' or 2026-11-24T02:00, in the window 'sat 02:00 60' or NAME, or now, "
        "outside of windows and in a freeze",
        f"{__name__}.cli.at",
        takes=(("not_before", "RFC 3339"), ("window", "as in `windows.open`"), ("any_time", "yes")),
        starts=True,
        at_once="any_time",
    ),
)
