# SPDX-License-Identifier: Apache-2.0
"""The views of all kinds of events: those of the base, and those that features register."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from nodeagent.report.event_view import E, EventView
from nodeagent.report.views import (
    bootloader,
    course,
    daemon,
    deployments,
    drain,
    drift,
    ends,
    etcd_member,
    fence,
    maintenance,
    safe_parts,
    steps,
)
from nodeagent.update.ports.events import Event

_views: Final[dict[type[Event], EventView[Any]]] = {}


def register(event_views: Iterable[EventView[Any]]) -> None:
    """Add the views of a feature, before the first event. Those that are there already stay."""
    for view in event_views:
        if _views.setdefault(view.event, view) is not view:
            raise ValueError(f"{view.event.__name__} has two views")


def views() -> Mapping[type[Event], EventView[Any]]:
    return _views


def view_of(event: E) -> EventView[E]:
    return _views[type(event)]


def message_ids() -> Mapping[str, int]:
    """Return the priority of each MESSAGE_ID. Problems of the status share the one of warnings."""
    priorities: dict[str, int] = {}
    for view in _views.values():
        priorities.setdefault(view.id, view.priority)
    return priorities


# The views of the base.
register(daemon.VIEWS)
register(course.VIEWS)
register(ends.VIEWS)
register(steps.VIEWS)
register(safe_parts.VIEWS)
register(deployments.VIEWS)
register(bootloader.VIEWS)
register(fence.VIEWS)
register(drain.VIEWS)
register(maintenance.VIEWS)
register(drift.VIEWS)
register(etcd_member.VIEWS)
