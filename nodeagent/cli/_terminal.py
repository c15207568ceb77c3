"""How answers look: for a person on a terminal, for a pipe, for a program.

Plain text needs nothing but print. Colour is four escapes; rich is imported for tables and live displays on a
terminal only, because it takes longer than the question.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

__all__ = [
    "BAD",
    "DIM",
    "GOOD",
    "STRONG",
    "WARN",
    "ago",
    "ahead",
    "clock",
    "counted",
    "duration",
    "emit",
    "local_now",
    "on_terminal",
    "paint",
    "table",
]

BAD, GOOD, WARN, DIM, STRONG = "31;1", "32", "33", "2", "1"


def on_terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str) -> str:
    if not text or not on_terminal() or "NO_COLOR" in os.environ:
        return text
    return f"\x1b[{style}m{text}\x1b[0m"


def emit(answer: Mapping[str, Any]) -> None:
    """One JSON object on one line, at once: a reader of ``--watch`` waits for it."""
    print(json.dumps(answer, ensure_ascii=False), flush=True)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """``right``: columns of numbers."""
    if on_terminal():
        _rich_table(headers, rows, right)
        return
    widths = [max(len(row[column]) for row in (headers, *rows)) for column in range(len(headers))]
    for row in (headers, *rows):
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def _rich_table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for column, header in enumerate(headers):
        shown.add_column(header, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        shown.add_row(*(Text.from_ansi(cell) for cell in row))
    Console(highlight=False).print(shown)


def local_now() -> datetime:
    return datetime.now(UTC).astimezone()  # noqa: TID251 - the one clock of the command line


def _parsed(stamp: str) -> datetime | None:
    try:
        return datetime.fromisoformat(stamp)
    except ValueError:
        return None


def clock(stamp: str, now: datetime) -> str:
    """An RFC 3339 time in the time zone of ``now``; with the date if that is another day. "-" for none."""
    when = _parsed(stamp)
    if when is None:
        return stamp or "-"
    local = when.astimezone(now.tzinfo)
    return local.strftime("%H:%M:%S" if local.date() == now.date() else "%Y-%m-%d %H:%M:%S")


def ago(stamp: str, now: datetime) -> str:
    when = _parsed(stamp)
    if when is None:
        return ""
    seconds = (now - when).total_seconds()
    return "just now" if seconds < 1 else f"{duration(seconds)} ago"


def ahead(stamp: str, now: datetime) -> str:
    """``, in 12 min``; "" for what is over."""
    when = _parsed(stamp)
    seconds = (when - now).total_seconds() if when is not None else 0.0
    return f", in {duration(seconds)}" if seconds >= 1 else ""


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def duration(seconds: float) -> str:
    """In at most two units: 0.4 s, 12 s, 3 min 20 s, 5 h 2 min, 3 d 4 h."""
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = int(seconds)
    for size, unit, smaller, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {name}" if rest else "")
    return f"{whole} s"
