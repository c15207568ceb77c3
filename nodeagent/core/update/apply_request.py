"""What an operator asked for, as the store keeps it until the update begins: without it a kill right after the desired
config was written would lose that it was a request, and not some tool that writes the same again."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ApplyRequest"]


@dataclass(frozen=True, slots=True)
class ApplyRequest:
    """Apply the config with this digest as soon as it is the desired one, also if it failed here or was rolled back.

    ``avoid`` and ``avoid_meaning`` are of the config that it takes the place of, for a rollback: that one is applied
    again on request only.
    """

    digest: str
    avoid: str = ""
    avoid_meaning: str = ""
