# SPDX-License-Identifier: Apache-2.0
"""The views of all parts of the status: those of the base, and those of the features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nodeagent.installed import doors
from nodeagent.report.part_view import Disruption, NodeCondition, PartView
from nodeagent.report.status import Status

_BASE: Final[Sequence[PartView[Any]]] = ()


def part_views() -> Sequence[PartView[Any]]:
    """Return the views of the base, then those of the installed features.

    That is their order in the status and on the page of metrics.
    """
    return *_BASE, *(view for door in doors() for view in door.status)


def disruption_of(status: Status) -> Disruption | None:
    """Return what an operator does with the node apart from an update; None without that."""
    parts = ((view, status.part(view.part)) for view in part_views())
    # Several parts may have one planned. The lease decides which begins, so the first is as good as another.
    found = (view.disruption(part, status) for view, part in parts if part is not None)
    return next((disruption for disruption in found if disruption is not None), None)


def node_conditions() -> Sequence[NodeCondition]:
    return [view.condition for view in part_views() if view.condition is not None]
