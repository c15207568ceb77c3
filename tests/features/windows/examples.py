# SPDX-License-Identifier: Apache-2.0
"""What windows add to the tables of the base's tests."""

from __future__ import annotations

from typing import Final

# Without a daemon the command reads the settings.
WITHOUT: Final = ("windows",)
