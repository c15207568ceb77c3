# SPDX-License-Identifier: Apache-2.0
"""The figure of a run as SVG: latency over time with the phases shaded, and staging time against p99. Pure.

Written without a library, which would be a dependency of every developer for two charts. Colours follow the reader's
preference for light or dark.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from integration.bench.fence.stats import Entry, between

__all__ = ["COLOURS", "STYLE", "finding", "picture"]

COLOURS = {"idle": "#8a8f98", "unfenced": "#dc4a41", "mcd": "#d9822b", "fence": "#2f9e52"}
OTHER = "#4f86c6"
STYLE = """\
text{font-family:system-ui,-apple-system,'DejaVu Sans',sans-serif}.ground{fill:#ffffff}.ink{fill:#1f2328}
.dim{fill:#57606a}
.grid{stroke:#d0d7de}.frame{stroke:#8c959f}.limit{stroke:#c0392b}.number{fill:#ffffff;font-weight:600}.bold{font-weight:600}
@media (prefers-color-scheme:dark){.ground{fill:#1b1f27}.ink{fill:#e6edf3}.dim{fill:#a3adb8}.grid{stroke:#3d4550}
.frame{stroke:#6b7684}.limit{stroke:#e5695c}}"""
WIDTH, MARGIN = 1000, 62
TOP, UPPER, LOWER = 74, 300, 320  # of the upper chart; heights of the two charts
GAP = 78
HEIGHT = TOP + UPPER + GAP + LOWER + 46
LOW, HIGH = 1.0, 20000.0  # ms, of both charts
LIMIT = 100.0  # ms
BIN = 1.0  # seconds of which the upper chart shows the median and the worst

Json = Mapping[str, Any]


def picture(setup: str, phases: Sequence[Json], entries: Sequence[Entry], titles: Mapping[str, str]) -> str:
    """``setup``: load and disk of the run. ``phases`` as in the report. ``titles``: a description of each variant."""
    title = finding(phases)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" class="ground"/>',
        _text(MARGIN, 24, title, size=17, kind="ink bold"),
        _text(MARGIN, 42, setup, kind="dim"),
        *_over_time(phases, entries, TOP),
        *_trade(phases, titles, TOP + UPPER + GAP),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def finding(phases: Sequence[Json]) -> str:
    """Return a sentence with the longest wait with the fence (or with the best variant) and without it."""
    worst: dict[str, float] = {}
    for phase in phases:
        worst[phase["variant"]] = max(phase["worst_ms"], worst.get(phase["variant"], 0.0))
    others = {name: value for name, value in worst.items() if name not in ("idle", "unfenced")}
    if not others or "unfenced" not in worst:
        return "Appends to the disk of etcd"
    best = "fence" if "fence" in others else min(others, key=others.__getitem__)
    name = "the fence" if best.startswith("fence") else best
    return f"Appends wait for up to {_duration(worst[best])} with {name}, and {_duration(worst['unfenced'])} without"


def _duration(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.1f} s" if milliseconds >= 1000 else f"{milliseconds:.0f} ms"


def _over_time(phases: Sequence[Json], entries: Sequence[Entry], top: int) -> list[str]:
    """The phases one after the other, without the time between them."""
    scale = (WIDTH - 2 * MARGIN) / sum(phase["end"] - phase["begin"] for phase in phases)
    out = [_text(MARGIN, top - 10, "Latency of an append, from when it was due: median and worst of each second, ms")]
    at, bars = float(MARGIN), []
    for number, phase in enumerate(phases):
        colour = COLOURS.get(phase["variant"], OTHER)
        width = (phase["end"] - phase["begin"]) * scale
        shade = f'fill="{colour}" opacity="{0.2 if number % 2 else 0.12}"'
        out.append(f'<rect x="{at:.1f}" y="{top}" width="{width:.1f}" height="{UPPER}" {shade}/>')
        # In two rows, so that long names have room.
        below = top + UPPER + 16 + 15 * (number % 2)
        out.append(_text(at + width / 2, below, phase["variant"], anchor="middle"))
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


def _trade(phases: Sequence[Json], titles: Mapping[str, str], top: int) -> list[str]:
    """A small dot for each round, a numbered one for the median; the idle p99 and three times it as lines."""
    staged = [phase for phase in phases if phase["staging_s"] is not None]
    longest = max((phase["staging_s"] for phase in staged), default=1.0) * 1.1
    right = WIDTH - 330
    out = [_text(MARGIN, top - 10, "99 % of the appends were faster than, ms, against the seconds of staging")]
    out += _grid(top, LOWER, right)
    for seconds in range(0, math.ceil(longest) + 1, _step(longest)):
        x = MARGIN + seconds / longest * (right - MARGIN)
        if x <= right:
            out.append(_text(x, top + LOWER + 16, f"{seconds} s", anchor="middle", kind="dim"))
    idle = sorted(phase["p99_ms"] for phase in phases if phase["variant"] == "idle")
    if idle:
        for factor, label in ((1, "idle"), (3, "three times idle")):
            y = _y(idle[len(idle) // 2] * factor, top, LOWER)
            out.append(f'<path d="M{MARGIN} {y:.1f}H{right}" class="frame" stroke-dasharray="6 4"/>')
            out.append(_text(MARGIN + 6, y - 4, label, kind="dim"))
    for row, name in enumerate(dict.fromkeys(phase["variant"] for phase in staged)):
        colour = COLOURS.get(name, OTHER)
        mine = [phase for phase in staged if phase["variant"] == name]
        points = [(MARGIN + p["staging_s"] / longest * (right - MARGIN), _y(p["p99_ms"], top, LOWER)) for p in mine]
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}" opacity="0.5"/>' for x, y in points]
        x, y = (sorted(values)[len(values) // 2] for values in zip(*points, strict=True))
        out += _dot(x, y, colour, row + 1)
        out += _legend(right + 24, top + 14 + row * 32, colour, row + 1, name, titles.get(name, ""))
    return out


def _dot(x: float, y: float, colour: str, number: int) -> list[str]:
    circle = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8" fill="{colour}"/>'
    return [circle, _text(x, y + 4, str(number), size=11, anchor="middle", kind="number")]


def _legend(x: float, y: float, colour: str, number: int, name: str, title: str) -> list[str]:
    return [
        *_dot(x, y - 4, colour, number),
        _text(x + 16, y, name, kind="ink bold"),
        _text(x + 16, y + 14, title, size=11, kind="dim"),
    ]


def _grid(top: int, height: int, right: int = WIDTH - MARGIN) -> list[str]:
    out = [f'<rect x="{MARGIN}" y="{top}" width="{right - MARGIN}" height="{height}" fill="none" class="frame"/>']
    value = LOW
    while value <= HIGH:
        y = _y(value, top, height)
        line = 'class="limit" stroke-dasharray="3 3"' if value == LIMIT else 'class="grid" stroke-width="0.6"'
        out.append(f'<path d="M{MARGIN} {y:.1f}H{right}" {line}/>')
        out.append(_text(MARGIN - 6, y + 4, f"{value:g}", anchor="end", kind="dim"))
        value *= 10
    return out


def _y(milliseconds: float, top: int, height: int) -> float:
    part = math.log(min(max(milliseconds, LOW), HIGH) / LOW) / math.log(HIGH / LOW)
    return top + height * (1 - part)


def _step(longest: float) -> int:
    """Return the distance of the marks of seconds: at most ten marks."""
    return next((step for step in (1, 2, 5, 10, 20, 50, 100, 200) if longest / step <= 10), 500)


def _text(x: float, y: float, text: str, *, size: int = 12, anchor: str = "start", kind: str = "ink") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"'
    return f'<text {place} class="{kind}">{escape(text)}</text>'
