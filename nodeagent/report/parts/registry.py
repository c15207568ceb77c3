# SPDX-License-Identifier: Apache-2.0
"""The views of all parts of the status: those of the base, and those that features register."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from nodeagent.report.part_view import PartView
from nodeagent.report.parts import fence

_views: Final[dict[str, PartView[Any]]] = {}


def register(views: Iterable[PartView[Any]]) -> None:
    """Add the views of a feature, before the first status. Those that are there already stay."""
    for view in views:
        if _views.setdefault(view.key, view) is not view:
            raise ValueError(f"two parts of the status are named {view.key}")


def part_views() -> Sequence[PartView[Any]]:
    """Return the views in the order of the status and of the page of metrics."""
    return tuple(_views.values())


# The views of the base.
register(fence.PARTS)
