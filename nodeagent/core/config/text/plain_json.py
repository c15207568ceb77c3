"""JSON of any origin, with one kind of error for all that is wrong with it."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["loads"]


def loads(data: str | bytes) -> Any:
    """Decode one JSON document. Raises ``ValueError``, also for nesting that is too deep for the interpreter.

    ``json.loads`` raises ``RecursionError`` for that, which callers that catch ``ValueError`` do not expect: one odd
    answer of a server would end the daemon. The size is the caller's to bound, before it has the whole text.
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("nested too deep") from None
