# SPDX-License-Identifier: Apache-2.0
"""Dates on which no update begins, as an admin writes them: days, or times of a local clock.

A freeze begins when the local clock first shows its begin, and ends when it last shows its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Final

from nodeagent.features.windows.decide.local_time import first_and_last

# Days of one freeze, at most: a longer one is a typing error.
MAX_DAYS: Final = 366
MAX_FREEZES: Final = 100


@dataclass(frozen=True, slots=True)
class Freeze:
    """``begins`` and ``ends`` are times of a local clock, without an offset; ``ends`` does not belong to it.

    ``name`` is why, "" if no reason is given.
    """

    begins: datetime
    ends: datetime
    name: str = ""

    def span(self, zone: tzinfo) -> Frozen:
        return Frozen(first_and_last(self.begins, zone)[0], first_and_last(self.ends, zone)[1], self.name)


@dataclass(frozen=True, slots=True, order=True)
class Frozen:
    """A freeze in UTC."""

    begins: datetime
    ends: datetime
    name: str = ""


def parse_freezes(texts: Iterable[str]) -> Sequence[Freeze]:
    """Parse freezes of the form "FIRST..LAST" or "DAY", each side a date or a date with a time, maybe with a name.

    The last day belongs to the freeze, a last time does not. Raises ``ValueError`` for the admin.
    """
    freezes = tuple(_parse(text) for text in texts)
    if len(freezes) > MAX_FREEZES:
        raise ValueError(f"{len(freezes)} freezes are more than {MAX_FREEZES}")
    return freezes


def _parse(text: str) -> Freeze:
    name, _, dates = (part.strip() for part in text.rpartition("="))
    first, dots, last = dates.partition("..")
    begins, ends = _moment(first, text), _moment(last if dots else first, text)
    # Without a time of day, the whole day is meant.
    if "T" not in (last if dots else first):
        ends += timedelta(days=1)
    if ends <= begins:
        raise ValueError(f"{text!r} ends before it begins")
    if ends - begins > timedelta(days=MAX_DAYS):
        raise ValueError(f"{text!r} is longer than {MAX_DAYS} days")
    return Freeze(begins, ends, name)


def _moment(text: str, freeze: str) -> datetime:
    # The library accepts more forms, such as weeks.
    if re.fullmatch(r"20\d\d-\d\d-\d\d(T\d\d:\d\d)?", text, re.ASCII):
        try:
            return datetime.fromisoformat(text)
        # The words differ with the release of Python.
        except ValueError:
            raise ValueError(f"{freeze!r} has a date that does not exist") from None
    raise ValueError(f"{freeze!r} has no date such as 2026-12-24 or 2026-12-24T18:00")
