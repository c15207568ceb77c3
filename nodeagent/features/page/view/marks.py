# SPDX-License-Identifier: Apache-2.0
"""Elements of SVG as text, and the places of labels. Every text from outside is escaped here.

Names of bars that are too short for them stand below the bars, on leaders that cross no other name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

# Width of a character of the font, as a part of its size. That of digits: an average would be too little for hashes.
_CHARACTER = 0.6

# Distances of two ticks, in seconds.
_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)


def length(seconds: float) -> str:
    """Return a length with at most two units: 77 ms, 0.4 s, 58.3 s, 2 min 37 s, 5 h 2 min."""
    if seconds < 0.1:
        return f"{seconds * 1000:.0f} ms"
    # From here on, one decimal would round up to 60 s.
    if seconds < 59.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    for size, unit, smaller, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {name}" if rest else "")
    return f"{whole} s"


def ticks(total: float, most: int) -> list[float]:
    """Return up to ``most`` round times from 0 to ``total``."""
    step = next((step for step in _STEPS if total / step <= most), total or 1.0)
    # A quotient of floats may be a little less than a whole number.
    return [index * step for index in range(int(total / step + 1e-9) + 1)]


def width_of(words: str, size: float) -> float:
    return len(words) * size * _CHARACTER


def fit(words: str, width: float, size: float) -> str:
    """Return the words, cut to a width; "" if less than three characters fit."""
    if width_of(words, size) <= width:
        return words
    room = int(width / (size * _CHARACTER)) - 1
    return f"{words[:room].rstrip()}…" if room >= 3 else ""


def rect(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:
    """Return a bar. A bar that is thinner than two pixels is drawn with two."""
    hint = f"<title>{escape(title)}</title>" if title else ""
    shape = f'x="{x:.1f}" y="{y:.1f}" width="{max(2.0, width):.1f}" height="{height:.1f}"'
    return f'<rect class="{kind}" {shape}>{hint}</rect>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def polyline(points: list[tuple[float, float]], kind: str) -> str:
    return f'<polyline class="{kind}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{style}{place}>{escape(words)}</text>'


# Pixels between a leader and its name, and between two names.
GAP = 4.0


@dataclass(frozen=True, slots=True)
class Label:
    """A name at ``x``, the place of its leader. ``flipped``: the name is on the left of it. ``row`` counts from 0."""

    words: str
    x: float
    width: float
    flipped: bool = False
    row: int = 0

    @property
    def left(self) -> float:
        return self.x - GAP - self.width if self.flipped else self.x

    @property
    def right(self) -> float:
        return self.x if self.flipped else self.x + GAP + self.width


def hanging(names: Sequence[tuple[str, float, float]], right: float) -> list[Label]:
    """Return labels for (name, x, width) in order of x, none of which extends beyond ``right``."""
    labels = [Label(words, x, width, x + GAP + width > right) for words, x, width in names]
    # A name on the right of its leader must not cover the leader of one that is flipped.
    for index in reversed(range(len(labels))):
        if any(other.flipped and other.x < labels[index].right for other in labels[index + 1 :]):
            labels[index] = _at(labels[index], flipped=True)
    placed: list[Label] = []
    for label in (*reversed([x for x in labels if not x.flipped]), *(x for x in labels if x.flipped)):
        below = [other.row for other in placed if other.left <= label.right + GAP and label.left <= other.right + GAP]
        placed.append(_at(label, flipped=label.flipped, row=max(below, default=-1) + 1))
    return placed


def _at(label: Label, *, flipped: bool, row: int = 0) -> Label:
    return Label(label.words, label.x, label.width, flipped, row)


def stacked(spans: Sequence[tuple[float, float]]) -> list[int]:
    """Return a row for each (left, right) so that none overlap within a row."""
    ends: list[float] = []
    rows: list[int] = []
    for left, right in spans:
        row = next((row for row, end in enumerate(ends) if end + GAP <= left), len(ends))
        ends[row : row + 1] = [right]
        rows.append(row)
    return rows
