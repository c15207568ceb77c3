# SPDX-License-Identifier: Apache-2.0
"""Draw a time line, or a part of it, as SVG: one lane above the other, to scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

from nodeagent.features.page.view.marks import (
    fit,
    hanging,
    length,
    line,
    polyline,
    rect,
    stacked,
    text,
    ticks,
    width_of,
)
from nodeagent.features.page.view.timeline import Bar, Timeline

SIZE: Final = 12.0
# Rows of steps and of waits; the tables have all of them.
MAX_ROWS: Final = 12
# Names that hang below the phases.
MAX_HANGING: Final = 12
# Milliseconds above which etcd warns about an fsync.
SLOW: Final = 100.0
_MB: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Layout:
    """``left`` is the column of the names of the lanes; 0: they are above the lanes."""

    name: str
    width: float
    left: float
    ticks: int


DESK = Layout("desk", 1000.0, 92.0, 9)
# No room for names beside the lanes.
PHONE = Layout("phone", 360.0, 0.0, 4)


@dataclass(slots=True)
class _Canvas:
    """``begin`` and ``end`` are the part of the time line, in seconds. ``y`` is the upper edge of the next lane."""

    layout: Layout
    begin: float
    end: float
    y: float = 26.0
    marks: list[str] = field(default_factory=list)

    @property
    def right(self) -> float:
        return self.layout.width - 8

    @property
    def left(self) -> float:
        return self.layout.left + 6

    def x(self, seconds: float) -> float:
        """Return the place of a time, within the edges."""
        # A bar may begin before the part that is drawn, or end behind it.
        part = (seconds - self.begin) / (self.end - self.begin)
        return self.left + (self.right - self.left) * min(1.0, max(0.0, part))

    def shows(self, bar: Bar) -> bool:
        return bar.end >= self.begin and bar.start <= self.end

    def lane(self, name: str, unit: str = "") -> float:
        """Begin a lane, and return its upper edge."""
        if self.layout.left:
            self.marks.append(text(self.layout.left - 6, self.y + 15, name, "lane", "end"))
            if unit:
                self.marks.append(text(self.layout.left - 6, self.y + 29, unit, "soft", "end"))
            return self.y
        self.marks.append(text(self.left, self.y + 12, f"{name}, {unit}" if unit else name, "lane"))
        self.y += 18
        return self.y


def draw(timeline: Timeline, layout: Layout, summary: str, part: tuple[float, float] | None = None) -> str:
    """Return an SVG element. ``summary`` describes it in words; ``part`` are the first and the last second."""
    begin, end = part or (0.0, timeline.total)
    # An update may have no length, and the scale divides by it.
    canvas = _Canvas(layout, begin, max(end, begin + 0.001))
    _phases(canvas, timeline.phases)
    _host(canvas, timeline)
    _rows(canvas, "Steps", timeline.steps)
    _rows(canvas, "Waits", timeline.waits)
    _fence(canvas, timeline)
    band = _band(canvas, timeline)
    scale = _scale(canvas)
    height = canvas.y + 22
    shape = f'viewBox="0 0 {layout.width:.0f} {height:.0f}" width="{layout.width:.0f}" height="{height:.0f}"'
    # SVG paints in this order, so the grid and the band are below the bars.
    body = "\n".join((*scale, *band, *canvas.marks))
    return f'<svg class="{layout.name}" role="img" aria-label="{escape(summary)}" {shape}>\n{body}\n</svg>'


def _phases(canvas: _Canvas, phases: Sequence[Bar]) -> None:
    top = canvas.lane("Phases")
    names: list[tuple[str, float, float]] = []
    for bar in filter(canvas.shows, phases):
        x, width = canvas.x(bar.start), canvas.x(bar.end) - canvas.x(bar.start)
        canvas.marks.append(rect(x, top, width, 22, f"bar {bar.kind}", f"{bar.name}, {length(bar.seconds)}"))
        if width_of(bar.name, SIZE) + 8 <= width:
            canvas.marks.append(text(x + width / 2, top + 15.5, bar.name, f"in {bar.kind}", "middle"))
        else:
            names.append((bar.name, x + min(width, 2) / 2, width_of(bar.name, SIZE)))
    canvas.y = top + 34 + _hang(canvas, names, top + 22)


def _hang(canvas: _Canvas, names: Sequence[tuple[str, float, float]], edge: float) -> float:
    """Draw names below a lane, whose lower edge is ``edge``. Return the height of their rows."""
    labels = hanging(names[:MAX_HANGING], canvas.right)
    for label in labels:
        y = edge + 14 + 15 * label.row
        canvas.marks.append(line(label.x, edge, label.x, y + 2, "leader"))
        place, anchor = (label.x - 4, "end") if label.flipped else (label.x + 4, "start")
        canvas.marks.append(text(place, y, label.words, "", anchor))
    return 15 * max((label.row + 1 for label in labels), default=0)


def _host(canvas: _Canvas, timeline: Timeline) -> None:
    top = canvas.lane("Host")
    for bar in filter(canvas.shows, timeline.boots):
        x, width = canvas.x(bar.start), canvas.x(bar.end) - canvas.x(bar.start)
        canvas.marks.append(rect(x, top + 2, width, 16, "bar boot", f"boot {bar.name}, {length(bar.seconds)}"))
        name = fit(f"boot {bar.name[:8]}", width - 8, SIZE)
        canvas.marks.append(text(x + width / 2, top + 14.5, name, "in", "middle"))
    names: list[tuple[str, float, float]] = []
    for down in timeline.downs:
        if not canvas.begin <= down.start <= canvas.end:
            continue
        x, width = canvas.x(down.start), canvas.x(down.end) - canvas.x(down.start)
        words = "down, length not known" if down.seconds is None else f"down {length(down.seconds)}"
        words += f", {length(down.booted)} of it booting" if down.booted else ""
        canvas.marks.append(rect(x, top + 2, width, 16, "bar down", words))
        names.append((words, x + width / 2, width_of(words, SIZE)))
    height = _hang(canvas, names, top + 18)
    for at, seconds in timeline.clock_steps:
        if canvas.begin <= at <= canvas.end:
            x = canvas.x(at)
            title = f"the wall clock was set by {seconds:+.1f} s"
            mark = f'<path class="clock" d="M{x:.1f} {top + 2:.1f}l-5 -8h10z"><title>{escape(title)}</title></path>'
            canvas.marks.append(mark)
    canvas.y = top + 30 + height


def _rows(canvas: _Canvas, name: str, bars: Sequence[Bar]) -> None:
    shown = list(filter(canvas.shows, bars))
    if not shown:
        return
    top = canvas.lane(name)
    places: list[tuple[Bar, float, float, str, str]] = []
    for bar in shown:
        x, width = canvas.x(bar.start), max(2.0, canvas.x(bar.end) - canvas.x(bar.start))
        # A shorter step is a mark of two pixels, and its length says nothing.
        words = bar.name if bar.seconds < 0.05 else f"{bar.name} {length(bar.seconds)}"
        rooms = {"in": width - 8, "after": canvas.right - x - width - 4, "before": x - canvas.left - 4}
        # The first place where it fits, or else the largest one, where it is cut.
        where = next(
            (name for name, room in rooms.items() if width_of(words, SIZE) <= room), max(rooms, key=rooms.__getitem__)
        )
        places.append((bar, x, width, fit(words, rooms[where], SIZE), where))
    spans = [_extent(*place[1:]) for place in places]
    rows = stacked(spans)
    for (bar, x, width, words, where), row in zip(places, rows, strict=True):
        if row >= MAX_ROWS:
            continue
        y = top + 18 * row
        title = f"{bar.name}, {length(bar.seconds)}" + (f": {bar.text}" if bar.text else "")
        canvas.marks.append(rect(x, y + 3, width, 14, f"bar step {bar.kind}", title))
        ends = {"in": (x + width / 2, "middle"), "after": (x + width + 4, "start"), "before": (x - 4, "end")}
        at, anchor = ends[where]
        canvas.marks.append(text(at, y + 14, words, f"in {bar.kind}" if where == "in" else "", anchor))
    more = sum(row >= MAX_ROWS for row in rows)
    canvas.y = top + 18 * min(MAX_ROWS, max(rows) + 1) + 12
    if more:
        canvas.marks.append(text(canvas.left, canvas.y, f"and {more} more", "soft"))
        canvas.y += 12


def _extent(x: float, width: float, words: str, where: str) -> tuple[float, float]:
    room = width_of(words, SIZE) + 4
    return {"in": (x, x + width), "after": (x, x + width + room), "before": (x - room, x + width)}[where]


def _fence(canvas: _Canvas, timeline: Timeline) -> None:
    points = [point for point in timeline.fence if canvas.begin <= point[0] <= canvas.end]
    caps = [(at, cap / _MB) for at, cap, _ in points if cap is not None]
    delays = [(at, p99) for at, _, p99 in points if p99 is not None]
    if len(points) < 2:
        return
    if caps:
        _strip(canvas, "I/O cap", "MB/s", caps, lambda value: f"{value:.1f} MB/s", stepped=True)
    if delays:
        _strip(canvas, "fsync p99", "of etcd, ms", delays, lambda value: f"{value:.0f} ms", mark=SLOW)


def _strip(
    canvas: _Canvas,
    name: str,
    unit: str,
    values: list[tuple[float, float]],
    shown: Callable[[float], str],
    *,
    stepped: bool = False,
    mark: float | None = None,
) -> None:
    # The room above the course is for the highest value.
    top, height = canvas.lane(name, unit) + 12, 34.0
    highest = max(value for _, value in values)
    full = max(highest, mark * 1.1 if mark is not None else 0.0, 0.001) * 1.05

    def y(value: float) -> float:
        return top + height * (1 - value / full)

    canvas.marks.append(line(canvas.left, top + height, canvas.right, top + height, "base"))
    if mark is not None:
        canvas.marks.append(line(canvas.left, y(mark), canvas.right, y(mark), "limit"))
        canvas.marks.append(text(canvas.right, y(mark) - 3, shown(mark), "warn", "end"))
    course: list[tuple[float, float]] = []
    # A cap holds until the next one. A latency is a sample, and a line connects two of them.
    for at, value in values:
        if stepped and course:
            course.append((canvas.x(at), course[-1][1]))
        course.append((canvas.x(at), y(value)))
    canvas.marks.append(polyline(course, "course"))
    at = next(at for at, value in values if value == highest)
    x, words = canvas.x(at), f"highest {shown(highest)}"
    anchor = "end" if x + width_of(words, SIZE) > canvas.right else "start"
    canvas.marks.append(text(x, top - 2, words, "soft", anchor))
    canvas.y = top + height + 16


def _band(canvas: _Canvas, timeline: Timeline) -> list[str]:
    outage = timeline.outage
    if outage is None or outage.end < canvas.begin or outage.start > canvas.end:
        return []
    x, width = canvas.x(outage.start), canvas.x(outage.end) - canvas.x(outage.start)
    words = f"{'out of service' if outage.whole else 'units restarted'} {length(outage.seconds)}"
    # The width is an estimate, because the font is that of the reader.
    half = width_of(words, SIZE) / 2 * 1.1
    middle = min(max(x + width / 2, canvas.left + half), canvas.right - half)
    return [rect(x, 18, width, canvas.y - 18, "band", words), text(middle, 12, words, "warn", "middle")]


def _scale(canvas: _Canvas) -> list[str]:
    marks: list[str] = []
    for at in ticks(canvas.end - canvas.begin, canvas.layout.ticks):
        x = canvas.x(canvas.begin + at)
        marks.append(line(x, 18, x, canvas.y + 4, "grid"))
        # Centred, the labels of the first and the last tick would leave the picture.
        anchor = "start" if at == 0 else "end" if x > canvas.right - 20 else "middle"
        marks.append(text(x, canvas.y + 17, length(at) if at else "0", "soft", anchor))
    return marks
