# SPDX-License-Identifier: Apache-2.0
"""`nodeagent windows`: the next windows and freezes, and when this host begins in each.

The daemon answers, because it knows how long updates of this host take. Without a daemon the command reads the settings
itself, and expects what a host without a history expects.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from nodeagent.cli._client import ask
from nodeagent.cli._io import emit, printable
from nodeagent.cli._render import WARN, clock, local_now, paint, table, wrapped
from nodeagent.cli._settings import valid_settings
from nodeagent.core.host_id import host_id
from nodeagent.errors import Unreachable
from nodeagent.features.windows.decide.estimate import EXPECTED, Estimate, Work, in_words
from nodeagent.features.windows.decide.listing import MOST, SCHEMA, SHOWN, listing
from nodeagent.features.windows.decide.turn import share_of
from nodeagent.features.windows.settings import WindowSettings
from nodeagent.features.windows.times import terms_of
from nodeagent.features.windows.zones import openings_of
from nodeagent.host.clock import SystemClock

DASH: Final = "-"
MACHINE_ID: Final = Path("/etc/machine-id")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help=f"one JSON object ({SCHEMA})")
    parser.add_argument(
        "--limit", type=_count, default=SHOWN, metavar="N", help="show the next N windows (default: %(default)s)"
    )


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"must be a number from 1 to {MOST}")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Return 0, also in a freeze and without a window."""
    answer = _answer(args.limit)
    if args.json:
        emit(answer)
    else:
        print("\n".join(_lines(answer, local_now())))
        _tables(answer, local_now())
    return 0


def _answer(count: int) -> dict[str, Any]:
    try:
        return ask(lambda client: client.read("Windows", "u", count))
    except Unreachable as error:
        cause = printable(f"{error.reason}: {error.message}")
        print(f"nodeagent: no answer from the daemon ({cause}); the command reads the settings", file=sys.stderr)
    settings = valid_settings().of(WindowSettings)
    openings = openings_of(settings.open, settings.freeze, settings.zone)
    estimates = {work: Estimate(work, length, length) for work, length in EXPECTED.items()}
    now = datetime.fromisoformat(SystemClock().now())
    listed = listing(openings, terms_of(settings, _place()), estimates, now, count)
    return {"schema": SCHEMA, "source": "command", "zone": settings.zone, **listed}


def _place() -> float:
    """Return the place of this host among all hosts, as the daemon has it."""
    try:
        return share_of(host_id(MACHINE_ID.read_text().strip()))
    except (OSError, ValueError):
        return 0.0


def _lines(answer: dict[str, Any], now: datetime) -> Iterator[str]:
    frozen = answer["frozen"]
    if frozen is not None:
        name = f" ({printable(frozen['name'])})" if frozen["name"] else ""
        yield paint(f"updates are frozen until {clock(frozen['ends'], now)}{name}", WARN)
    elif not answer["windows"]:
        yield paint("no window ever opens", WARN)
    else:
        yield "updates may begin now" if answer["open"] else "no window is open"
    yield from wrapped(f"Windows are in the time zone {answer['zone']}; the times below are those of this host.", 0)
    if answer["spread"]:
        yield from wrapped(f"Hosts are spread over {answer['spread']} min of a window.", 0)
    if answer["end_inside"]:
        yield "Nothing begins that would probably end after its window."
        for work, about in answer["estimates"].items():
            yield from wrapped(_expected(work, about), 0)


def _expected(work: str, about: dict[str, Any]) -> str:
    length, updates = in_words(timedelta(seconds=about["seconds"])), about["updates"]
    source = f"by {updates} similar update{'s' if updates != 1 else ''}" if updates else "without a similar update yet"
    fits = "" if about["fits"] else "; no window is long enough, so it begins at the start of one"
    return f"{work}: {length} ({source}){fits}"


def _tables(answer: dict[str, Any], now: datetime) -> None:
    works = [str(work) for work in Work] if answer["spread"] or answer["end_inside"] else []
    rows = [
        [
            _clock(window["begins"], now),
            _clock(window["ends"], now),
            *(_clock(window["host_begins"][work], now) for work in works),
        ]
        for window in answer["windows"]
    ]
    print()
    table(["OPENS", "CLOSES", *(work.upper() for work in works)], rows)
    if answer["freezes"]:
        print()
        freezes = [
            [clock(freeze["begins"], now), clock(freeze["ends"], now), printable(freeze["name"]) or DASH]
            for freeze in answer["freezes"]
        ]
        table(["FROZEN FROM", "UNTIL", "NAME"], freezes)


def _clock(stamp: str, now: datetime) -> str:
    return clock(stamp, now) if stamp else DASH
