# SPDX-License-Identifier: Apache-2.0
"""The bounds of one document."""

from __future__ import annotations

from typing import Final

# Ten times what a cluster accepts for one object (1.5 MiB): offline use needs room.
MAX_BYTES: Final = 16 * 1024 * 1024
# A MachineConfig needs 10. The JSON decoder itself fails near 1000.
MAX_DEPTH: Final = 64
# Values in one document: at worst about 100 MB of Python objects.
MAX_NODES: Final = 1_000_000
MAX_INT: Final = 2**63 - 1
