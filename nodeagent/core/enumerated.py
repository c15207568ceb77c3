# SPDX-License-Identifier: Apache-2.0
"""Lists of names in messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

# Names in a message of one line. The JSON and the status have all of them.
SHOWN: Final = 3


def enumerated(names: Iterable[str], shown: int = SHOWN) -> str:
    """Return the first names, and the number of the others: ``a, b, c and 4 more``."""
    listed = list(names)
    more = len(listed) - shown
    return ", ".join(listed[:shown]) + (f" and {more} more" if more > 0 else "")
