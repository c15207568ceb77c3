# SPDX-License-Identifier: Apache-2.0
"""How the requests of a fleet grow with its nodes: both axes are logarithmic, so that the slope is the exponent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from figures import picture, text

SIZES = (100, 200, 400)
LEFT, RIGHT, TOP, BOTTOM = 80, 530, 60, 400
# What the axes cover: nodes from left to right, and times of the first value from bottom to top.
NODES = (90.0, 450.0)
TIMES = (0.8, 20.0)


class Growth(NamedTuple):
    """``counts`` are those of ``SIZES``, and ``kind`` is the style of the line."""

    what: str
    unit: str
    counts: tuple[float, float, float]
    kind: str


# `make bench-fleet` counts them.
GROWTHS = (
    Growth("a roll-out, one slot for 50 nodes", "requests", (5766, 11394, 22596), "in"),
    Growth("nodes that wait for a slot", "requests/s", (1.442, 2.891, 5.792), "out"),
    Growth("at rest", "requests/s", (1.943, 3.903, 7.805), "head"),
)


def x_of(nodes: float) -> float:
    return LEFT + (RIGHT - LEFT) * math.log(nodes / NODES[0]) / math.log(NODES[1] / NODES[0])


def y_of(times: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * math.log(times / TIMES[0]) / math.log(TIMES[1] / TIMES[0])


def slope(counts: Sequence[float]) -> float:
    """Return the exponent of the growth: the slope of the logarithms."""
    return math.log(counts[-1] / counts[0]) / math.log(SIZES[-1] / SIZES[0])


def growth() -> str:
    worst = max(slope(each.counts) for each in GROWTHS)
    title = f"The requests of a fleet grow with its nodes: exponents up to {worst:.2f}"
    drawn: str = picture(900, BOTTOM + 60, title, _parts())
    return drawn


def _parts() -> Iterator[str]:
    for line in (1, 2, 4, 8, 16):
        yield f'<path d="M{LEFT} {y_of(line):.1f}H{RIGHT}" class="rule"/>'
        yield text(LEFT - 8, y_of(line) + 4, f"× {line}", "small dim", "end")
    for nodes in SIZES:
        yield f'<path d="M{x_of(nodes):.1f} {TOP}V{BOTTOM}" class="rule"/>'
        yield text(x_of(nodes), BOTTOM + 20, f"{nodes} nodes", "small dim", "middle")
    # What each node that reads all others would make of it.
    ends = [(nodes, (nodes / SIZES[0]) ** 2) for nodes in SIZES]
    yield _line(ends, "line", 'stroke-dasharray="3 5"')
    yield text(x_of(SIZES[-1]) - 12, y_of(16) - 8, "each node reads all others: 2", "small dim", "end")
    for row, each in enumerate(GROWTHS):
        points = [(nodes, count / each.counts[0]) for nodes, count in zip(SIZES, each.counts, strict=True)]
        yield _line(points, "line", 'stroke-width="1.6"')
        for nodes, times in points:
            # Circles in each other: the lines are close.
            yield f'<circle cx="{x_of(nodes):.1f}" cy="{y_of(times):.1f}" r="{7 - 2 * row}" class="{each.kind}"/>'
        y = 120 + 84 * row
        yield f'<circle cx="560" cy="{y - 5}" r="6" class="{each.kind}"/>'
        yield text(574, y, f"{each.what}: {slope(each.counts):.2f}", "bold")
        shown = ", ".join(f"{count:.4g}" if count < 100 else str(count) for count in each.counts)
        yield text(574, y + 20, f"{shown} {each.unit}", "small dim")
    yield text(574, BOTTOM, "make bench-fleet", "small dim mono")


def _line(points: Sequence[tuple[float, float]], kind: str, more: str) -> str:
    steps = " ".join(f"{x_of(nodes):.1f},{y_of(times):.1f}" for nodes, times in points)
    return f'<polyline points="{steps}" class="{kind}" fill="none" {more}/>'
