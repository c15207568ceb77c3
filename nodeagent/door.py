# SPDX-License-Identifier: Apache-2.0
"""The door of a feature: what it declares to the base, and what it does in the running daemon.

The base knows no feature. It has places that features fill: commands, settings, reasons, guards of an update.
``nodeagent.features`` lists the features.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nodeagent.kinds import ReasonEnum
from nodeagent.report.event_view import EventView
from nodeagent.report.part_view import PartView
from nodeagent.settings.part import Part
from nodeagent.settings.schema import Settings
from nodeagent.update.guard import Guard
from nodeagent.update.ports.host import Clock, Reporter
from nodeagent.update.ports.store import Store


@dataclass(frozen=True, slots=True)
class Base:
    """What the base gives to a feature when the daemon starts."""

    settings: Settings
    store: Store
    clock: Clock
    reporter: Reporter


def _keep(_settings: Settings) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """What a feature does in the running daemon. It does nothing of what it leaves out.

    ``use`` is called with settings that were read again. It must not wait and must not fail.
    """

    use: Callable[[Settings], None] = _keep
    guard: Guard | None = None
    # What runs beside the loop, and its name. One that fails is started again.
    beside: Sequence[tuple[str, Callable[[], Awaitable[None]]]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """``title`` is the heading in the references. ``page`` is below docs/.

    ``open`` builds the feature when the daemon starts, and imports what it needs. It may block.
    """

    title: str
    page: str
    settings: tuple[type[Part], ...] = ()
    reasons: type[ReasonEnum] | None = None
    events: tuple[EventView[Any], ...] = ()
    status: tuple[PartView[Any], ...] = ()
    open: Callable[[Base], Feature] | None = None
