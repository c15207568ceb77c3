# SPDX-License-Identifier: Apache-2.0
"""What an operator reads about the time of an update."""

from __future__ import annotations

from datetime import UTC, datetime

from nodeagent.features.windows.decide.estimate import Estimate, in_words
from nodeagent.features.windows.decide.turn import HostTurn, Obstacle
from nodeagent.features.windows.reasons import WindowReason

REASONS = {
    Obstacle.CLOSED: WindowReason.WINDOW_CLOSED,
    Obstacle.FROZEN: WindowReason.FROZEN,
    Obstacle.SPREAD: WindowReason.WINDOW_SPREAD,
    Obstacle.SHORT: WindowReason.WINDOW_TOO_SHORT,
}


def moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def waits(turn: HostTurn, estimate: Estimate, now: datetime) -> str:
    """Return why an update waits, and until when."""
    begins = f"it begins at {moment(turn.begins)}" if turn.begins is not None else "it never begins"
    match turn.obstacle:
        case Obstacle.FROZEN if turn.frozen is not None:
            name = f" ({turn.frozen.name})" if turn.frozen.name else ""
            return f"updates are frozen until {moment(turn.frozen.ends)}{name}; {begins}"
        case Obstacle.SPREAD:
            return f"the hosts are spread over the window; {begins}"
        case Obstacle.SHORT if turn.opening is not None and turn.opening.ends is not None:
            left = in_words(turn.opening.ends - now)
            return f"it will not end before the window closes: {estimate}, {left} are left; {begins}"
        case _:
            return f"no window is open; the next one {_opens(turn)}"


def _opens(turn: HostTurn) -> str:
    if turn.begins is None:
        return "never opens"
    opens = turn.within.begins if turn.within is not None else None
    if opens is None or opens == turn.begins:
        return f"opens {moment(turn.begins)}"
    return f"opens {moment(opens)}, and this host begins at {moment(turn.begins)}"


def planned(turn: HostTurn, estimate: Estimate, now: datetime) -> str:
    """Return the note of a plan: when the update would begin, if it were applied now."""
    text = f"windows: {waits(turn, estimate, now)}" if turn.obstacle is not None else "windows: it begins at once"
    return text if turn.fits else f"{text}; {too_long(estimate)}"


def too_long(estimate: Estimate) -> str:
    return f"no window is long enough, so it begins at the start of one: {estimate}"
