# SPDX-License-Identifier: Apache-2.0
"""A client certificate for the agent of each node: its request, its renewal, and the approval by an operator."""

from __future__ import annotations

from typing import Final

from nodeagent.commands import Command

COMMANDS: Final = (
    Command(
        "bootstrap",
        "get a certificate of its own for the agent of this node, or renew it",
        "nodeagent.features.certificates.cli.bootstrap",
        after="settings",
        no_json="units run its steps, and read the exit status; nodeagent selfcheck --json shows the certificate",
    ),
    Command(
        "approve",
        "check certificate requests of agents, and approve those that fit",
        "nodeagent.features.certificates.cli.approve",
        under="fleet",
    ),
)
