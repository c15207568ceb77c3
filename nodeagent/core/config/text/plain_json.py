# SPDX-License-Identifier: Apache-2.0
"""Decode JSON of any origin. All modules use this instead of ``json.loads``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def loads(data: str | bytes, *, on_object: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Decode one JSON document; ``on_object`` makes an object from its pairs. The caller bounds the size.

    Raises ``ValueError`` for every fault.
    """
    try:
        return json.loads(data, object_pairs_hook=on_object)
    # Callers do not expect this error for deep nesting, and one odd answer of a server would end the daemon.
    except RecursionError:
        raise ValueError("nested too deep") from None


def object_of(data: bytes) -> dict[str, Any] | None:
    """Return the JSON object that a server sent, None for anything else: a proxy answers in HTML."""
    try:
        document = loads(data)
        # Half of a surrogate pair is no character, and could not be logged or sent. Only an escape can contain one.
        if b"\\u" in data:
            json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
