# SPDX-License-Identifier: Apache-2.0
"""Images of system extensions in a config: fetched, checked by their digests, merged, and reverted."""

from __future__ import annotations

from typing import Final

DOMAINS: Final = (f"{__name__}.decide",)
