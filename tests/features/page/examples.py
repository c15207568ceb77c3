# SPDX-License-Identifier: Apache-2.0
"""What the page of an update adds to the tables of the base's tests."""

from __future__ import annotations

from typing import Final

READS: Final = {"report --html page.html": ("Update", "History")}
