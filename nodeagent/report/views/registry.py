# SPDX-License-Identifier: Apache-2.0
"""The views of all kinds of events: those of the base, and those of the features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from nodeagent.installed import doors
from nodeagent.report.event_view import E, EventView
from nodeagent.report.views import (
    course,
    daemon,
    deployments,
    ends,
    safe_parts,
    steps,
)
from nodeagent.update.ports.events import Event

_BASE: Final[Mapping[type[Event], EventView[Any]]] = {
    view.event: view for module in (*(daemon, course, ends, steps, safe_parts, deployments),) for view in module.VIEWS
}


def views() -> Mapping[type[Event], EventView[Any]]:
    """Return the views of the base, then those of the installed features."""
    return {**_BASE, **{view.event: view for door in doors() for view in door.events}}


def view_of(event: E) -> EventView[E]:
    kind = type(event)
    return _BASE[kind] if kind in _BASE else views()[kind]


def message_ids() -> Mapping[str, int]:
    """Return the priority of each MESSAGE_ID. Problems of the status share the one of warnings."""
    priorities: dict[str, int] = {}
    for view in views().values():
        priorities.setdefault(view.id, view.priority)
    return priorities
