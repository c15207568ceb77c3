# SPDX-License-Identifier: Apache-2.0
"""The drawing of a time line: what is where, on what scale, and what is left out."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from nodeagent.features.page.view.drawing import DESK, MAX_HANGING, MAX_ROWS, PHONE, Layout, draw
from nodeagent.features.page.view.timeline import Bar, Downtime, PartKind, Point, Timeline, timeline_of
from tests.features.page.samples import an_os, restarts


class Drawing:
    def __init__(self, svg: str) -> None:
        self.root = ElementTree.fromstring(svg)

    def texts(self, kind: str | None = None) -> list[str]:
        """Return the texts of a class, in their order; None: those without one."""
        return [each.text or "" for each in self.root.iter("text") if each.get("class") == kind]

    def lines(self, kind: str) -> list[ElementTree.Element]:
        return [each for each in self.root.iter("line") if each.get("class") == kind]

    def anchors(self, *words: str) -> list[str]:
        """Return the side of each text on which its place is."""
        found = {each.text: each.get("text-anchor", "start") for each in self.root.iter("text")}
        return [found[each] for each in words]

    def titles(self, kind: str) -> list[str]:
        """Return the titles of the bars whose class begins with ``kind``."""
        return [each.findtext("title") or "" for each in self._bars(kind)]

    def edges(self, kind: str) -> list[tuple[float, float]]:
        """Return the left and the right edge of those bars."""
        found = [(float(each.attrib["x"]), float(each.attrib["width"])) for each in self._bars(kind)]
        return [(x, round(x + width, 1)) for x, width in found]

    def ticks(self) -> list[str]:
        return self.texts("soft")[: len(self.lines("grid"))]

    def _bars(self, kind: str) -> list[ElementTree.Element]:
        return [each for each in self.root.iter("rect") if each.get("class", "").startswith(kind)]


def drawn(timeline: Timeline | None, layout: Layout = DESK, part: tuple[float, float] | None = None) -> Drawing:
    assert timeline is not None
    return Drawing(draw(timeline, layout, "summary", part))


def test_the_scale_has_the_time_of_each_tick() -> None:
    found = drawn(timeline_of(an_os()))
    assert found.ticks() == ["0", "30 s", "1 min", "1 min 30 s", "2 min", "2 min 30 s"]
    assert found.anchors("0", "30 s", "2 min 30 s") == ["start", "middle", "middle"]
    assert drawn(replace(steps(), total=90.0)).anchors("0", "1 min 20 s", "1 min 30 s") == ["start", "middle", "end"]
    assert drawn(timeline_of(an_os()), PHONE, (100.0, 157.0)).ticks() == ["0", "15 s", "30 s", "45 s"]


def test_a_whole_update() -> None:
    found = drawn(timeline_of(an_os()))
    assert found.texts("lane") == ["Phases", "Host", "Steps", "Waits", "I/O cap", "fsync p99"]
    # Behind those of the scale.
    assert found.texts("soft")[6:] == ["MB/s", "highest 6.5 MB/s", "of etcd, ms", "highest 200 ms"]
    assert found.texts("warn") == ["out of service 49.9 s", "100 ms"]
    assert found.texts("in quiet") == ["Staging", "Staging deployment 1 min 4 s"]
    assert found.texts("in disrupt") == ["Rebooting", "Verifying"]
    assert found.texts("in") == ["boot e7ba540b", "boot 22557402"]
    # Names without room in their bars: first those that hang below the phases.
    assert found.texts() == [
        *("Acting", "Writing", "Leasing", "Releasing", "down 12 s, 12 s of it booting"),
        *("Fetching objects 11 s", "the reboot waits until 01:52:33 for apt 8 s"),
    ]
    assert found.anchors("Acting", "Leasing", "Releasing") == ["start", "start", "end"]
    assert len(found.lines("leader")) == 5
    assert found.titles("bar boot") == ["boot e7ba540b12cc, 1 min 48 s", "boot 22557402b6ff, 37 s"]
    assert found.titles("bar down") == ["down 12 s, 12 s of it booting"]
    assert [each.findtext("title") for each in found.root.iter("path")] == ["the wall clock was set by -31.0 s"]
    assert found.edges("bar down") == [(713.0, 781.3)]
    assert found.edges("band") == [(707.3, 991.4)]


def test_a_part_of_an_update_has_what_is_in_it() -> None:
    found = drawn(timeline_of(an_os()), PHONE, (100.0, 157.0))
    assert found.titles("bar ") == [
        *("Rebooting, 21.2 s", "Verifying, 36.9 s", "Releasing, 0.1 s"),
        *("boot e7ba540b12cc, 1 min 48 s", "boot 22557402b6ff, 37 s", "down 12 s, 12 s of it booting"),
        "the reboot waits until 01:52:33 for apt, 8 s: the reboot waits until 2026-11-23T01:52:33Z for apt",
    ]
    assert found.edges("bar boot") == [(6.0, 54.6), (127.4, 352.0)], "it ends at the edge"
    first = drawn(timeline_of(an_os()), DESK, (0.0, 20.0))
    assert first.texts("lane") == ["Phases", "Host"]
    assert first.titles("bar ") == ["Staging, 1 min 38 s", "boot e7ba540b12cc, 1 min 48 s"]
    assert (first.titles("band"), list(first.root.iter("path"))) == ([], [])
    last = drawn(timeline_of(an_os()), DESK, (156.95, 157.0))
    assert last.titles("band") == []


def test_units_on_a_narrow_page_are_beside_the_name_of_the_lane() -> None:
    found = drawn(timeline_of(an_os()), PHONE)
    assert found.texts("lane") == ["Phases", "Host", "Steps", "Waits", "I/O cap, MB/s", "fsync p99, of etcd, ms"]
    assert "MB/s" not in found.texts("soft")


def test_restarts_are_named_as_such() -> None:
    assert drawn(timeline_of(restarts())).titles("band") == ["units restarted 2.9 s"]


def steps(*spans: tuple[float, float], text: str = "") -> Timeline:
    bars = tuple(Bar(f"s{n}", PartKind.QUIET, start, seconds, text=text) for n, (start, seconds) in enumerate(spans))
    return Timeline(100.0, (), bars, (), (), (), None)


def test_a_row_has_steps_that_do_not_overlap() -> None:
    found = drawn(steps((0.0, 50.0), (60.0, 40.0), (10.0, 10.0)))
    assert found.titles("bar step") == ["s0, 50 s", "s1, 40 s", "s2, 10 s"]
    assert [each.get("y") for each in found.root.iter("rect")] == ["93.0", "93.0", "111.0"]
    assert found.texts("in quiet") == ["s0 50 s", "s1 40 s", "s2 10 s"]


def test_more_steps_than_rows_are_counted() -> None:
    found = drawn(steps(*[(0.0, 100.0)] * (MAX_ROWS + 3)))
    assert len(found.titles("bar step")) == MAX_ROWS
    assert found.texts("soft")[-1] == "and 3 more"
    all_of_them = drawn(steps(*[(0.0, 100.0)] * MAX_ROWS))
    assert len(all_of_them.titles("bar step")) == MAX_ROWS
    assert not [each for each in all_of_them.texts("soft") if "more" in each]


def test_a_short_step_has_no_length() -> None:
    found = drawn(steps((0.0, 0.049), (50.0, 0.05), text="why"))
    assert found.texts() == ["s0", "s1 50 ms"]
    assert found.titles("bar step") == ["s0, 49 ms: why", "s1, 50 ms: why"]


def test_words_are_where_there_is_room() -> None:
    found = drawn(steps((0.0, 5.0), (99.0, 1.0)), PHONE)
    assert found.anchors("s0 5 s", "s1 1 s") == ["start", "end"]
    # Nowhere is enough room for all of them.
    long = replace(steps((40.0, 1.0)), steps=(Bar("n" * 90, PartKind.QUIET, 40.0, 1.0),))
    (words,) = drawn(long, PHONE).texts()
    assert words.endswith("n…")


def test_names_of_many_short_phases_hang_below() -> None:
    phases = tuple(Bar(f"p{n}", PartKind.WAIT, 6.0 * n, 0.1) for n in range(MAX_HANGING + 2))
    found = drawn(replace(steps(), phases=phases))
    assert len(found.titles("bar wait")) == len(phases)
    assert sorted(found.texts()) == sorted(f"p{n}" for n in range(MAX_HANGING))


@pytest.mark.parametrize(
    ("down", "words"),
    [
        (Downtime(10.0, None, None), "down, length not known"),
        (Downtime(10.0, 20.0, None), "down 20 s"),
        (Downtime(10.0, 20.0, 5.0), "down 20 s, 5 s of it booting"),
    ],
)
def test_the_time_between_two_boots(down: Downtime, words: str) -> None:
    found = drawn(replace(steps(), downs=(down,)))
    assert (found.titles("bar down"), found.texts()) == ([words], [words])


def test_an_update_without_a_length_has_a_drawing() -> None:
    found = drawn(Timeline(0.0, (Bar("p", PartKind.WAIT, 0.0, 0.0),), (), (), (), (), None))
    assert found.titles("bar wait") == ["p, 0 ms"]


@pytest.mark.parametrize(
    ("fence", "lanes"),
    [
        (((1.0, 5_000_000, 20.0),), []),
        (((1.0, 5_000_000, None), (2.0, 4_000_000, None)), ["I/O cap"]),
        (((1.0, None, 20.0), (2.0, None, 30.0)), ["fsync p99"]),
        (((1.0, 5_000_000, 20.0), (200.0, 4_000_000, 10.0)), []),
    ],
    ids=["one sample", "no latency", "no cap", "one within the part"],
)
def test_a_fence_is_drawn_from_two_samples_on(fence: tuple[Point, ...], lanes: list[str]) -> None:
    found = drawn(replace(steps(), fence=fence))
    assert [name for name in found.texts("lane") if name not in ("Phases", "Host")] == lanes


def test_a_cap_holds_until_the_next_one_and_a_latency_does_not() -> None:
    fence = ((0.0, 8_000_000, 10.0), (50.0, 4_000_000, 50.0), (100.0, 2_000_000, 20.0))
    found = drawn(replace(steps(), fence=fence))
    cap, latency = (
        [tuple(map(float, point.split(","))) for point in each.attrib["points"].split()]
        for each in found.root.iter("polyline")
    )
    assert [x for x, _ in cap] == [98.0, 545.0, 545.0, 992.0, 992.0]
    assert cap[0][1] == cap[1][1] < cap[2][1] == cap[3][1] < cap[4][1]
    assert [x for x, _ in latency] == [98.0, 545.0, 992.0]
    # The limit is above a latency that never reaches it.
    base, limit = (float(found.lines(kind)[-1].attrib["y1"]) for kind in ("base", "limit"))
    assert base - 34 < limit < latency[1][1] < latency[2][1] < latency[0][1] < base


def test_the_highest_value_at_the_right_edge_is_named_on_its_left() -> None:
    fence = ((0.0, 1_000_000, None), (100.0, 2_000_000, None))
    assert drawn(replace(steps(), fence=fence)).anchors("highest 2.0 MB/s") == ["end"]
    former = tuple((100.0 - at, cap, p99) for at, cap, p99 in fence[::-1])
    assert drawn(replace(steps(), fence=former)).anchors("highest 2.0 MB/s") == ["start"]
