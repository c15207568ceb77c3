"""Times in texts. The agent writes RFC 3339 in UTC; a display shows them in local time."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

__all__ = ["with_times"]

_STAMP: Final = re.compile(r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?Z")


def with_times(text: str, shown: Callable[[str], str]) -> str:
    """Return the text with ``shown`` applied to each time in it."""
    return _STAMP.sub(lambda match: shown(match.group()), text)
