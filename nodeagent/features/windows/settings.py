# SPDX-License-Identifier: Apache-2.0
"""The settings of the feature."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from nodeagent.features.windows.zones import HOST_ZONE, schedule_of, zone_name
from nodeagent.settings.part import Part

DAY = "(mon|tue|wed|thu|fri|sat|sun)"
# The largest number of minutes, 9999, is just less than a week, after which the same window opens again.
WindowText = Annotated[
    str,
    Meta(
        pattern=rf"^([a-z][a-z0-9-]{{0,31}} = )?({DAY}(,{DAY})* )?([01]\d|2[0-3]):[0-5]\d [1-9]\d{{0,3}}$",
        description='"DAYS HH:MM MINUTES", as in "sat,sun 02:00 120"; without days for every day; "NAME = " may '
        "precede it",
    ),
]
# Without dots: the name is a path below the database of time zones, and must not lead out of it.
ZoneName = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9_+/-]+$", max_length=128, description="a time zone as in Europe/Prague")
]


class WindowSettings(Part, frozen=True, forbid_unknown_fields=True):
    """Times at which an update may begin. Staging needs no window, and a window that closes interrupts nothing.

    ``open``: weekly windows in which an update may begin. An empty list: always. nodeagent apply --at NAME begins in
    the window of that name.

    ``zone``: time zone of the windows; localtime is that of the host. UTC: the same on every host.
    """

    group = "windows"

    open: tuple[WindowText, ...] = ()
    zone: ZoneName = "UTC"

    def check_host(self) -> None:
        schedule_of(self.open, self.zone)

    def notes(self) -> Iterator[str]:
        yield f"Windows are in the time zone {zone_name(self.zone)}, also those of nodeagent apply --at (windows.zone)."
        yield f"A time, as in nodeagent apply --at 22:00, is in the time zone {zone_name(HOST_ZONE)}."
