# SPDX-License-Identifier: Apache-2.0
"""Slots and order of a rollout in a cluster: how many nodes of a pool are updated at once, and which pool is first."""

from __future__ import annotations

from typing import Final

from nodeagent.commands import Command

COMMANDS: Final = (
    Command(
        "status", "show each pool, and each node that needs attention", f"{__name__}.cli", after="fleet", under="fleet"
    ),
)
