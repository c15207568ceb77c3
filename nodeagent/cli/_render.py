# SPDX-License-Identifier: Apache-2.0
"""Draw tables, bars, colours and times as text.

Colours, and lines that are drawn over, are for terminals only. NO_COLOR switches colours off (https://no-color.org).
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from nodeagent.core.display import with_times

BAD, GOOD, WARN, DIM, STRONG = "31;1", "32", "33", "2", "1"
BAR_WIDTH: Final = 24
# Columns between two of a table.
GAP: Final = 2

# Styles of the outcomes of an update. After a revert the host is well.
OUTCOMES: Final = {
    "done": GOOD,
    "done-after-fallback": WARN,
    "partial": WARN,
    "reverted": WARN,
    "degraded": BAD,
    "superseded": WARN,
    "withdrawn": WARN,
    "cancelled": WARN,
}

# Of a terminal that does not report its height, such as a serial console.
DEFAULT_HEIGHT: Final = 24
# Columns of a text that is wrapped.
NARROWEST: Final = 40
ESCAPE: Final = "\x1b["


def on_terminal() -> bool:
    # TERM is dumb where escapes would be shown as text: a shell in Emacs, many CI systems.
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str) -> str:
    if not text or not style or not on_terminal() or os.environ.get("NO_COLOR"):
        return text
    return f"{ESCAPE}{style}m{text}{ESCAPE}0m"


def wrapped(text: str, indent: int) -> list[str]:
    """Return the lines of a text that begins in the column ``indent`` of a terminal; one without a terminal.

    A painted text is not wrapped: its escapes have no width.
    """
    if not on_terminal() or ESCAPE in text:
        return [text]
    width = shutil.get_terminal_size().columns - indent
    # Names and paths are kept whole, so that they can be copied.
    lines = textwrap.wrap(text, max(width, NARROWEST), break_long_words=False, break_on_hyphens=False)
    # A line that an indented journal has keeps its indentation.
    return [text[: len(text) - len(text.lstrip())] + lines[0].lstrip(), *lines[1:]] if lines else [text]


def bar(percent: int) -> str:
    full = round(BAR_WIDTH * percent / 100)
    return paint("█" * full, GOOD) + paint("░" * (BAR_WIDTH - full), DIM)


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[int] = (),
    below: Sequence[Sequence[str]] = (),
) -> None:
    """Print ``table_lines``."""
    for line in table_lines(headers, rows, right=right, below=below):
        print(line)


def table_lines(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[int] = (),
    below: Sequence[Sequence[str]] = (),
) -> Iterator[str]:
    """Yield aligned columns as lines. ``right`` are the columns of numbers. Cells may be painted. ``below`` has lines
    for each row, which follow it, below its second column."""
    titles = [paint(header, STRONG) for header in headers]
    widths = [max(map(_width, column)) for column in zip(titles, *rows, strict=True)]
    for number, row in enumerate((titles, *rows)):
        cells = []
        for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
            padding = " " * (width - _width(cell))
            cells.append(padding + cell if column in right else cell + padding)
        yield (" " * GAP).join(cells).rstrip()
        for line in below[number - 1] if below and number else ():
            indent = widths[0] + 2 * GAP
            yield from (f"{' ' * indent}{part}" for part in wrapped(line, indent))


def _width(cell: str) -> int:
    """Return the number of columns of a cell, without the two escapes of ``paint``."""
    if not cell.startswith(ESCAPE):
        return len(cell)
    # A cell is painted as a whole, so the first m ends its first escape.
    return len(cell) - cell.index("m") - 1 - len(f"{ESCAPE}0m")


class Screen:
    """Lines on a terminal, each time drawn over the lines before."""

    def __init__(self) -> None:
        self._height = 0

    def draw(self, lines: Sequence[str]) -> None:
        # Lines above the top of the terminal could not be drawn over. Without automatic wrapping (mode 7) the terminal
        # cuts long lines off.
        height = os.get_terminal_size(sys.stdout.fileno()).lines or DEFAULT_HEIGHT
        shown = lines[: height - 1]
        text = "".join(f"{line}{ESCAPE}K\n" for line in shown)
        print(f"{self._up()}{ESCAPE}?7l{text}{ESCAPE}?7h{ESCAPE}J", end="", flush=True)
        self._height = len(shown)

    def clear(self) -> None:
        print(f"{self._up()}{ESCAPE}J", end="", flush=True)
        self._height = 0

    def _up(self) -> str:
        return f"{ESCAPE}{self._height}F" if self._height else ""


def change_name(change: str) -> str:
    """Return the id of a change as it is, as in ``file:/etc/x``, and ``fips`` for ``fips:fips``."""
    domain, _, key = change.partition(":")
    return domain if domain == key else change


def local_now() -> datetime:
    return datetime.now(UTC).astimezone()  # noqa: TID251 - the one clock of the command line


def _parsed(stamp: str) -> datetime | None:
    try:
        return datetime.fromisoformat(stamp)
    except ValueError:
        return None


def clock(stamp: str, now: datetime) -> str:
    """Return an RFC 3339 time in the time zone of ``now``, with the date if that is another day. "-" for none."""
    when = _parsed(stamp)
    if when is None:
        return stamp or "-"
    local = when.astimezone(now.tzinfo)
    return local.strftime("%H:%M:%S" if local.date() == now.date() else "%Y-%m-%d %H:%M:%S")


def local_times(text: str, now: datetime, *, zone: bool = False) -> str:
    """Return a text of the daemon with its times as ``clock`` shows them, with ``zone`` also their time zone."""
    suffix = f" {now.tzname()}" if zone else ""
    return with_times(text, lambda stamp: clock(stamp, now) + suffix)


def ago(stamp: str, now: datetime) -> str:
    when = _parsed(stamp)
    if when is None:
        return ""
    seconds = (now - when).total_seconds()
    return "just now" if seconds < 1 else f"{duration(seconds)} ago"


def ahead(stamp: str, now: datetime) -> str:
    """Return ``, in 12 min``; "" for a time in the past."""
    when = _parsed(stamp)
    seconds = (when - now).total_seconds() if when is not None else 0.0
    return f", in {duration(seconds)}" if seconds >= 1 else ""


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def duration(seconds: float) -> str:
    """Return at most two units: 0.4 s, 12 s, 3 min 20 s, 5 h 2 min, 3 d 4 h."""
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = int(seconds)
    for size, unit, smaller, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {name}" if rest else "")
    return f"{whole} s"
