# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from typing import Final

from nodeagent.door import Door

DOOR: Final = Door(title="Self-check", page="reference/selfcheck.md")
