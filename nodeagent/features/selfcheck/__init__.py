# SPDX-License-Identifier: Apache-2.0
"""The check of an installation: unit, bus, files, versions, servers, and what other features add."""

from __future__ import annotations

from typing import Final

from nodeagent.commands import Command

COMMANDS: Final = (
    Command(
        "selfcheck",
        "check the installation of nodeagent on this host",
        "nodeagent.features.selfcheck.cli.selfcheck",
        after="settings",
    ),
)
