# SPDX-License-Identifier: Apache-2.0
"""Checks of the admin in /etc/nodeagent/checks, which decide whether an update goes on."""

from __future__ import annotations

from typing import Final

from nodeagent.installed import AdminTree

TREES: Final = (AdminTree("checks", f"{__name__}.decide"),)
