# SPDX-License-Identifier: Apache-2.0
"""A config on trial: it is taken back, unless an operator keeps it from a login that began after the update."""

from __future__ import annotations

from typing import Final

from nodeagent.commands import Command, Option, StatusRows

COMMANDS: Final = (Command("keep", "keep the config that is on trial", f"{__name__}.cli", after="cancel"),)
OPTIONS: Final = (
    Option(
        "--try",
        "DURATION",
        "take the config back, unless nodeagent keep runs within this time, as 10m: 1m to 24h",
        f"{__name__}.cli",
        takes=(("trial", "seconds, 60 to 86400"),),
        planned=True,
    ),
)
ROWS: Final = (StatusRows("trial", f"{__name__}.cli", after="lease"),)
