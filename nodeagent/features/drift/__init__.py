# SPDX-License-Identifier: Apache-2.0
"""Drift: managed entries that another program changed are noticed when it happens, and put back if that is set."""

from __future__ import annotations

from typing import Final

from nodeagent.commands import StatusRows

ROWS: Final = (StatusRows("drift", f"{__name__}.cli", after="partly"),)
