# SPDX-License-Identifier: Apache-2.0
"""A reboot without a change of the config, on request of an operator, of another program or of the cluster."""

from __future__ import annotations

from typing import Final

from nodeagent.commands import Extension, StatusRows

EXTENDS: Final = (Extension("reboot", "reboot this host on request", f"{__name__}.cli", "nodeagent/reboot-request/v1"),)
ROWS: Final = (
    StatusRows("reboot_request", f"{__name__}.cli", after="lease"),
    StatusRows("reboot_required", f"{__name__}.cli", after=""),
)
