"""Places for the names of bars that are too short for them: below the bars, on leaders that cross no other name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Label", "hanging", "stacked"]

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
