# SPDX-License-Identifier: Apache-2.0
"""The settings of the feature."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Annotated, Final

from msgspec import Meta

from nodeagent.features.windows.decide.freeze import parse_freezes
from nodeagent.features.windows.decide.openings import Openings
from nodeagent.features.windows.decide.schedule import Schedule
from nodeagent.features.windows.decide.turn import MOST_SEARCHED
from nodeagent.features.windows.decide.window import WEEK, parse_windows
from nodeagent.features.windows.zones import HOST_ZONE, openings_of, zone_name
from nodeagent.settings.part import Contradiction, Part
from nodeagent.settings.schema import Settings

# A Monday, from which the lengths of the windows are compared.
ANY_DAY: Final = datetime(2026, 1, 5, tzinfo=UTC)
# Days without an opening, at most: a longest freeze, and a month until the next window.
MOST_CLOSED: Final = 400
NAME = r"([a-z][a-z0-9-]{0,31} = )?"
DAY = "(mon|tue|wed|thu|fri|sat|sun)"
PLACE = "([1-5](st|nd|rd|th)|last)"
DAY_OF_MONTH = r"(([1-9]|[12]\d|3[01])(st|nd|rd|th)|last)"
DAYS = f"({DAY}(,{DAY})* |{PLACE}(,{PLACE})* ({DAY}(,{DAY})*|weekday) |{DAY_OF_MONTH}(,{DAY_OF_MONTH})* )?"
# The largest number of minutes, 9999, is just less than a week, after which the same window opens again.
WindowText = Annotated[
    str,
    Meta(
        pattern=rf"^{NAME}{DAYS}([01]\d|2[0-3]):[0-5]\d [1-9]\d{{0,3}}$",
        description='"DAYS HH:MM MINUTES", as in "sat,sun 02:00 120" or "2nd tue 02:00 120"; without days for every '
        'day; "NAME = " may precede it',
    ),
]
DATE = r"20\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])(T([01]\d|2[0-3]):[0-5]\d)?"
FreezeText = Annotated[
    str,
    Meta(
        pattern=rf"^{NAME}{DATE}(\.\.{DATE})?$",
        description='"FIRST..LAST", as in "2026-12-20..2027-01-03" or "2026-12-20T18:00..2027-01-04T06:00", or a day; '
        '"NAME = " may precede it',
    ),
]
# Without dots: the name is a path below the database of time zones, and must not lead out of it.
ZoneName = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9_+/-]+$", max_length=128, description="a time zone as in Europe/Prague")
]


class WindowSettings(Part, frozen=True, forbid_unknown_fields=True):
    """Times at which an update may begin. Staging needs no window, and a window that closes interrupts nothing.

    ``open``: weekly and monthly windows in which an update may begin. An empty list: always. nodeagent apply --at NAME
    begins in the window of that name.

    ``freeze``: dates on which no update begins, also in a window. The last day belongs to it, and a last time does not.

    ``spread``: minutes of a window over which hosts begin, each at its own time, which depends on its machine id. 0: at
    the start, as many as slots allow. Each host begins early enough for what its update needs.

    ``end_inside``: nothing begins that would probably end after its window, by the last updates of this host. An update
    that is too long for each window begins at the start of one. False: an estimate is no promise, so a host does not
    miss its window for one unless an admin wants that.

    ``zone``: time zone of the windows and freezes; localtime is that of the host. UTC: the same on every host.
    """

    group = "windows"

    open: tuple[WindowText, ...] = ()
    freeze: tuple[FreezeText, ...] = ()
    spread: Annotated[int, Meta(ge=0, le=WEEK)] = 0
    end_inside: bool = False
    zone: ZoneName = "UTC"

    def contradictions(self, settings: Settings) -> Iterator[Contradiction]:  # noqa: ARG002
        try:
            windows = Schedule(parse_windows(self.open), UTC) if self.open else None
            # An hour of the time zone makes no difference here.
            freezes = sorted(freeze.span(UTC) for freeze in parse_freezes(self.freeze))
        except ValueError:
            # A value that is wrong alone, which the check of this host reports.
            return
        if windows is not None and (message := self._too_spread(windows)):
            yield ("windows.spread", "windows.open"), message
        openings = Openings(windows, tuple(freezes))
        for freeze in freezes:
            opening = next(openings.after(freeze.begins), None)
            begins = opening.begins if opening is not None else None
            if begins is None or begins - freeze.begins > timedelta(days=MOST_CLOSED):
                message = f"no update could begin for more than {MOST_CLOSED} days from {freeze.begins:%Y-%m-%d}"
                yield ("windows.freeze", "windows.open") if self.open else ("windows.freeze",), message
                return

    def _too_spread(self, windows: Schedule) -> str:
        lengths = [opening.length for opening in islice(Openings(windows).after(ANY_DAY), MOST_SEARCHED)]
        # One that is open for weeks has no begin over which hosts could be spread.
        longest = max((length for length in lengths if length is not None), default=None)
        if longest is None or self.spread <= longest.total_seconds() / 60:
            return ""
        minutes = longest // timedelta(minutes=1)
        return f"windows.spread ({self.spread}) is more than the {minutes} minutes of the longest window"

    def check_host(self) -> None:
        openings_of(self.open, self.freeze, self.zone)

    def notes(self) -> Iterator[str]:
        yield f"Windows are in the time zone {zone_name(self.zone)}, also those of nodeagent apply --at (windows.zone)."
        yield f"A time, as in nodeagent apply --at 22:00, is in the time zone {zone_name(HOST_ZONE)}."
