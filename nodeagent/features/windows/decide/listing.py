# SPDX-License-Identifier: Apache-2.0
"""The next openings of a host, with its own time in each: the answer of `nodeagent windows`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from typing import Any, Final

from nodeagent.features.windows.decide.estimate import Estimate, Work
from nodeagent.features.windows.decide.freeze import Frozen
from nodeagent.features.windows.decide.openings import Openings
from nodeagent.features.windows.decide.schedule import Opening
from nodeagent.features.windows.decide.turn import Terms, interval, turn
from nodeagent.features.windows.decide.words import moment

SCHEMA: Final = "nodeagent/windows/v1"
# Windows of one answer, at most and without a number.
MOST: Final = 100
SHOWN: Final = 10


def listing(
    openings: Openings, terms: Terms, estimates: Mapping[Work, Estimate], now: datetime, count: int
) -> dict[str, Any]:
    """Return the keys of the answer that depend on the time. Times are RFC 3339 in UTC, "" for none."""
    fits = {work: turn(openings, terms, estimate.needed, now).fits for work, estimate in estimates.items()}
    frozen = openings.frozen(now)

    def host_begins(opening: Opening, work: Work) -> str:
        first, until = interval(opening, terms, estimates[work].needed, fits=fits[work])
        # An empty interval: this window is too short for such an update.
        return "" if first is not None and until is not None and first >= until else _text(first)

    ahead = list(islice(openings.after(now), count))
    return {
        "now": moment(now),
        "open": bool(ahead) and frozen is None and (ahead[0].begins is None or ahead[0].begins <= now),
        "frozen": _freeze(frozen) if frozen is not None else None,
        "spread": int(terms.spread.total_seconds() / 60),
        "end_inside": terms.end_inside,
        "windows": [
            {
                "begins": _text(opening.begins),
                "ends": _text(opening.ends),
                "host_begins": {str(work): host_begins(opening, work) for work in estimates},
            }
            for opening in ahead
        ],
        "freezes": [_freeze(freeze) for freeze in openings.freezes if freeze.ends > now],
        "estimates": {
            str(work): {
                "seconds": estimate.needed.total_seconds(),
                "slowest": estimate.slowest.total_seconds(),
                "updates": estimate.updates,
                "fits": fits[work],
            }
            for work, estimate in estimates.items()
        },
    }


def _freeze(freeze: Frozen) -> dict[str, str]:
    return {"name": freeze.name, "begins": moment(freeze.begins), "ends": moment(freeze.ends)}


def _text(at: datetime | None) -> str:
    return moment(at) if at is not None else ""
