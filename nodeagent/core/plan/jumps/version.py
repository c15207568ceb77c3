"""The order of versions of an OS: 41.20241027.3.0, 4.18.0-rc.1, 9.6.20250523-0.

Numbers are compared as numbers and words as words, part by part. A word makes a version older than the same one without
it, as in Semantic Versioning (4.18.0-rc.1 < 4.18.0), and a number newer (42 < 42.1). What follows a + does not count.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["VERSION", "VersionKey", "version_key"]

# A pattern of a whole version.
VERSION: Final = r"^[A-Za-z0-9][A-Za-z0-9._~+-]{0,127}$"

_PART = re.compile(r"[0-9]+|[A-Za-z]+")
_END: Final = (1, 0, "")

VersionKey = tuple[tuple[int, int, str], ...]


def version_key(text: str) -> VersionKey:
    """Return a key to compare versions with."""
    parts = _PART.findall(text.partition("+")[0])
    return (*((2, int(part), "") if part.isdigit() else (0, 0, part.lower()) for part in parts), _END)
