"""What an update finds on the disk before it writes anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["MAX_KEPT", "Survey"]

MAX_KEPT = 256 << 20
"""Bytes of replaced files that one update keeps for a revert, in the store and for a moment in memory. The service
has 1 GiB."""


@dataclass(frozen=True, slots=True)
class Survey:
    """``obstacles``: each path at which nothing can be written, and why. ``kept``: bytes that a revert has to keep."""

    obstacles: Mapping[str, str] = field(default_factory=dict)
    kept: int = 0
