"""The picture of a run as SVG: latency over time with the phases shaded, and staging time against p99. Pure.

By hand, because a library for it would be a dependency of everybody who develops here, for two charts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from integration.bench.fence.stats import Entry, between

__all__ = ["COLOURS", "picture"]

COLOURS = {"A": "#7f7f7f", "B": "#d62728", "M": "#e08214", "C": "#1a7f37"}
OTHER = "#3b6fb6"
WIDTH, MARGIN = 1000, 62
UPPER, LOWER = 300, 320  # heights of the two charts
GAP = 78
HEIGHT = 56 + UPPER + GAP + LOWER + 46
LOW, HIGH = 1.0, 20000.0  # ms, of both charts
LIMIT = 100.0  # ms
BIN = 1.0  # seconds of which the upper chart shows the median and the worst
TITLE_Y = 22

Json = Mapping[str, Any]


def picture(title: str, phases: Sequence[Json], entries: Sequence[Entry], names: Mapping[str, str]) -> str:
    """``phases`` as the report has them; ``names``: what each variant is, for people."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _text(MARGIN, TITLE_Y, title, size=15),
        *_over_time(phases, entries, 56),
        *_trade(phases, names, 56 + UPPER + GAP),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _over_time(phases: Sequence[Json], entries: Sequence[Entry], top: int) -> list[str]:
    """The phases one after the other; what lies between them (cleaning up) is left out."""
    scale = (WIDTH - 2 * MARGIN) / sum(phase["end"] - phase["begin"] for phase in phases)
    out = [_text(MARGIN, top - 10, "Latency of an append, from when it was due: median and worst of each second, ms")]
    at, bars = float(MARGIN), []
    for phase in phases:
        colour = COLOURS.get(phase["variant"], OTHER)
        width = (phase["end"] - phase["begin"]) * scale
        out.append(
            f'<rect x="{at:.1f}" y="{top}" width="{width:.1f}" height="{UPPER}" fill="{colour}" opacity="0.12"/>'
        )
        out.append(_text(at + width / 2, top + UPPER + 14, phase["variant"], anchor="middle", colour=colour))
        begin = phase["begin"]
        while begin < phase["end"]:
            latencies = sorted(e.latency * 1000 for e in between(entries, begin, min(begin + BIN, phase["end"])))
            if latencies:
                x = at + (begin - phase["begin"]) * scale
                middle, worst = (_y(value, top, UPPER) for value in (latencies[len(latencies) // 2], latencies[-1]))
                stroke = f'stroke="{colour}" stroke-width="{max(0.6, BIN * scale * 0.8):.2f}"'
                bars.append(f'<path d="M{x:.1f} {middle:.1f}V{min(worst, middle - 1):.1f}" {stroke}/>')
            begin += BIN
        at += width
    return [*out, *_grid(top, UPPER), *bars]


def _trade(phases: Sequence[Json], names: Mapping[str, str], top: int) -> list[str]:
    """One small dot a round, a large one for the median of the rounds; the idle p99 and three times it as lines."""
    staged = [phase for phase in phases if phase["staging_s"] is not None]
    longest = max((phase["staging_s"] for phase in staged), default=1.0) * 1.1
    right = WIDTH - 330
    out = [_text(MARGIN, top - 10, "99 % of the appends were faster than, ms, against the seconds of staging")]
    out += _grid(top, LOWER, right)
    for seconds in range(0, math.ceil(longest) + 1, _step(longest)):
        x = MARGIN + seconds / longest * (right - MARGIN)
        if x <= right:
            out.append(_text(x, top + LOWER + 16, f"{seconds} s", anchor="middle", colour="#555"))
    idle = sorted(phase["p99_ms"] for phase in phases if phase["variant"] == "A")
    if idle:
        for factor, label in ((1, "idle"), (3, "three times idle")):
            y = _y(idle[len(idle) // 2] * factor, top, LOWER)
            out.append(f'<path d="M{MARGIN} {y:.1f}H{right}" stroke="#7f7f7f" stroke-dasharray="6 4"/>')
            out.append(_text(right - 4, y - 4, label, anchor="end", colour="#555"))
    for row, name in enumerate(dict.fromkeys(phase["variant"] for phase in staged)):
        colour = COLOURS.get(name, OTHER)
        mine = [phase for phase in staged if phase["variant"] == name]
        points = [(MARGIN + p["staging_s"] / longest * (right - MARGIN), _y(p["p99_ms"], top, LOWER)) for p in mine]
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}" opacity="0.5"/>' for x, y in points]
        x, y = (sorted(values)[len(values) // 2] for values in zip(*points, strict=True))
        out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7" fill="{colour}"/>')
        out.append(_text(x + 10, y + 4, name, colour=colour))
        legend = top + 14 + row * 18
        out.append(f'<circle cx="{right + 24}" cy="{legend - 4}" r="5" fill="{colour}"/>')
        out.append(_text(right + 36, legend, f"{name}: {names.get(name, '')}"))
    return out


def _grid(top: int, height: int, right: int = WIDTH - MARGIN) -> list[str]:
    out = [f'<rect x="{MARGIN}" y="{top}" width="{right - MARGIN}" height="{height}" fill="none" stroke="#999"/>']
    value = LOW
    while value <= HIGH:
        y = _y(value, top, height)
        strong = value == LIMIT
        stroke = 'stroke="#b00" stroke-dasharray="3 3"' if strong else 'stroke="#ccc"'
        out.append(f'<path d="M{MARGIN} {y:.1f}H{right}" {stroke} stroke-width="{1 if strong else 0.6}"/>')
        out.append(_text(MARGIN - 6, y + 4, f"{value:g}", anchor="end", colour="#555"))
        value *= 10
    return out


def _y(milliseconds: float, top: int, height: int) -> float:
    part = math.log(min(max(milliseconds, LOW), HIGH) / LOW) / math.log(HIGH / LOW)
    return top + height * (1 - part)


def _step(longest: float) -> int:
    """Of the scale of seconds: not more than ten marks."""
    return next((step for step in (1, 2, 5, 10, 20, 50, 100, 200) if longest / step <= 10), 500)


def _text(x: float, y: float, text: str, *, size: int = 12, anchor: str = "start", colour: str = "#222") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'
    )
