# SPDX-License-Identifier: Apache-2.0
"""Sections of a config that no running host can take, accepted by name: they are reported, and the rest is applied."""

from __future__ import annotations

from typing import Final

from nodeagent.commands import StatusRows

ROWS: Final = (StatusRows("left_out", f"{__name__}.cli", after="partly"),)
