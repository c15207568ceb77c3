# SPDX-License-Identifier: Apache-2.0
"""The quorum of the etcd cluster that has a member on this host, which a disruption must not break."""

from __future__ import annotations

from typing import Final

from nodeagent.commands import Command

COMMANDS: Final = (
    Command("status", "list the members, and whether this host may be disrupted", f"{__name__}.cli", under="etcd"),
)
