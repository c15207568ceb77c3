# SPDX-License-Identifier: Apache-2.0
"""When this host begins an update: its own time within an opening, so that the update ends inside."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import islice
from typing import Final

from nodeagent.features.windows.decide.freeze import Frozen
from nodeagent.features.windows.decide.openings import Openings
from nodeagent.features.windows.decide.schedule import Opening

# Each host can begin for at least this long: an attempt may meet a peer that does not answer.
ROOM: Final = timedelta(minutes=5)
# Openings that are searched, at least and at most.
SEARCHED: Final = 16
MOST_SEARCHED: Final = 100
MONTH: Final = timedelta(days=40)
NOTHING: Final = timedelta(0)


@dataclass(frozen=True, slots=True)
class Terms:
    """How a host uses an opening. ``spread`` is the time over which hosts begin, and ``share`` the place of this host
    in it, from 0 to 1. ``end_inside``: nothing begins that would end after the opening."""

    spread: timedelta = NOTHING
    share: float = 0.0
    end_inside: bool = False


class Obstacle(StrEnum):
    """Why an update may not begin now."""

    CLOSED = "closed"
    FROZEN = "frozen"
    # The opening is there, and the time of this host in it is later.
    SPREAD = "spread"
    # The opening is there, and ends too soon.
    SHORT = "short"


@dataclass(frozen=True, slots=True)
class HostTurn:
    """``begins``: when this host may begin, None: never. ``obstacle`` None: now.

    ``opening`` covers the present moment, ``frozen`` as well; None if none does. ``within`` is the opening in which it
    begins. Not ``fits``: no opening is long enough, so the update begins at the start of one.
    """

    begins: datetime | None
    obstacle: Obstacle | None
    opening: Opening | None = None
    frozen: Frozen | None = None
    within: Opening | None = None
    fits: bool = True


def share_of(host_id: str) -> float:
    """Return the place of a host among all hosts, from 0 to less than 1. It depends on the id alone."""
    # Other programs use the same id, so the digest has a purpose.
    digest = hashlib.sha256(f"nodeagent windows {host_id}".encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48


def turn(openings: Openings, terms: Terms, needed: timedelta, now: datetime, *, too_long: bool = False) -> HostTurn:
    """Return when an update that needs ``needed`` may begin on this host. ``too_long``: it is known not to fit."""
    now = now.astimezone(UTC)
    frozen = openings.frozen(now)
    turn = HostTurn(None, Obstacle.FROZEN if frozen is not None else Obstacle.CLOSED, frozen=frozen)
    # An update that fits into no opening must not wait without end.
    for fits in (*(() if too_long else (True,)), False) if terms.end_inside else (True,):
        for opening in _ahead(openings, now):
            # The present opening may be too short, and a later one long enough.
            first, until = interval(opening, terms, needed, fits=fits)
            if opening.begins is None or opening.begins <= now:
                short = first is None or now >= first
                turn = replace(turn, opening=opening, obstacle=Obstacle.SHORT if short else Obstacle.SPREAD)
            begins = max(now, first) if first is not None else now
            if until is None or begins < until:
                obstacle = turn.obstacle if begins > now else None
                return replace(turn, begins=begins, obstacle=obstacle, within=opening, fits=fits)
    return turn


def _ahead(openings: Openings, now: datetime) -> Iterator[Opening]:
    """Yield the openings among which one should be long enough: those of a month, and some more if there are few."""
    for number, opening in enumerate(islice(openings.after(now), MOST_SEARCHED)):
        if number >= SEARCHED and opening.begins is not None and opening.begins > now + MONTH:
            return
        yield opening


def interval(
    opening: Opening, terms: Terms, needed: timedelta, *, fits: bool
) -> tuple[datetime | None, datetime | None]:
    """Return from when until when this host may begin in an opening, None for no bound; the end does not belong to it.

    It is empty if the opening is too short. Not ``fits``: the update begins at its start all the same.
    """
    begins, ends = opening.begins, opening.ends
    # Without the setting, an update may begin in the last second of a window, as it always could.
    until = ends
    if ends is not None and terms.end_inside and fits:
        until = ends - needed
    # For weeks already: each host has had its time.
    if begins is None:
        return None, until
    # What never ends has room for every update, so only the spread counts.
    if ends is None or until is None:
        return begins + _offset(terms.spread, terms.share), None
    # It begins near the start: later in the window, it would last even longer beyond the end.
    if not fits:
        length = ends - begins
        until = begins + max(min(ROOM, length), length / 4)
    elif terms.end_inside and until - begins < ROOM:
        return begins, begins
    # What the host needs still fits behind its own time.
    room = (ends - needed if fits else until) - ROOM - begins
    return begins + _offset(min(terms.spread, room), terms.share), until


def _offset(spread: timedelta, share: float) -> timedelta:
    # Whole seconds, as in the messages.
    return timedelta(seconds=int(max(spread, NOTHING).total_seconds() * share))
