# SPDX-License-Identifier: Apache-2.0
"""The page of an update: one axis over its boots, the time out of service, the comparison, and safe markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.features.page.view.marks import fit, hanging, length, stacked, ticks, width_of
from nodeagent.features.page.view.page import page
from nodeagent.features.page.view.timeline import MeasuredReboot, Timeline, comparison_of, measured_reboot, timeline_of
from tests.features.page.samples import an_os, hostile, restarts, span, update


def timeline(of: dict[str, object]) -> Timeline:
    found = timeline_of(of)
    assert found is not None
    return found


def test_both_boots_are_on_one_axis() -> None:
    found = timeline(an_os())
    assert [(bar.name, round(bar.start, 1), round(bar.end, 1)) for bar in found.phases] == [
        ("Staging", 0.0, 98.0),
        ("Leasing", 98.0, 98.5),
        ("Writing", 98.5, 98.7),
        ("Acting", 98.7, 98.8),
        # Until the agent runs again.
        ("Rebooting", 98.8, 120.0),
        ("Verifying", 120.0, 156.9),
        ("Releasing", 156.9, 157.0),
    ]
    assert [(down.start, down.seconds) for down in found.downs] == [(108.0, 12.0)]
    assert found.total == 157.0
    assert found.clock_steps == ((128.0, -31.0),)


def test_an_unknown_gap_takes_no_place() -> None:
    broken = an_os()
    broken["trail"]["boots"][1]["offset"] -= 1000
    found = timeline(broken)
    assert [(down.start, down.seconds) for down in found.downs] == [(108.0, None)]
    assert (found.total, measured_reboot(found)) == (145.0, None)
    assert "its length is not known" in page(broken, host="h", version="1")


@pytest.mark.parametrize(("outcome", "kept"), [("done", True), ("superseded", True), ("reverted", False)])
def test_a_config_that_failed_is_not_called_one_without_a_disruption(outcome: str, kept: bool) -> None:
    trail = {"boots": [], "phases": []}
    assert ("nothing was disrupted" in page(update(trail, outcome=outcome), host="h", version="1")) is kept


@pytest.mark.parametrize("omitted", [0, 3])
def test_items_that_were_left_out_are_counted(omitted: int) -> None:
    with_them = an_os()
    with_them["trail"]["omitted"] = omitted
    assert ("3 items were left out" in page(with_them, host="h", version="1")) is bool(omitted)
    assert ("items were left out" in page(with_them, host="h", version="1")) is bool(omitted)


def test_words_that_just_fit_are_not_cut() -> None:
    width = width_of("Verifying", 11)
    assert fit("Verifying", width, 11) == "Verifying"
    assert fit("Verifying", width - 0.1, 11).endswith("…")


def test_out_of_service_is_from_the_accepted_reboot_to_the_verified_host() -> None:
    outage = timeline(an_os()).outage
    assert outage is not None
    assert (outage.start, round(outage.end, 1), outage.whole) == (107.0, 156.9, True)


def test_without_a_reboot_it_is_the_time_of_the_restarts() -> None:
    outage = timeline(restarts()).outage
    assert outage is not None
    assert (round(outage.start, 1), round(outage.end, 1), outage.whole) == (30.9, 33.8, False)


def test_with_a_drain_it_is_from_the_cordon_to_the_release() -> None:
    drained = restarts()
    drained["trail"]["phases"].insert(1, span("Draining", 20.0, 30.4, 0, -1000))
    outage = timeline(drained).outage
    assert outage is not None
    assert (round(outage.start, 1), round(outage.end, 1), outage.whole) == (20.0, 44.1, True)


def test_an_update_without_an_action_has_no_outage() -> None:
    quiet = restarts()
    quiet["trail"]["steps"] = []
    assert timeline(quiet).outage is None
    html = page(quiet, host="h", version="1")
    assert "nothing was disrupted" in html
    assert "Compared with" not in html


def test_the_comparison_is_made_of_measured_parts() -> None:
    found = comparison_of(timeline(an_os()))
    assert found is not None
    assert [(part.name, round(part.seconds, 1)) for part in found.usual] == [
        ("pull and stage", 98.0),
        ("write", 0.2),
        ("reboot", 48.9),
    ]
    assert found.missing == ("the drain",)
    assert [round(seconds, 1) for seconds in found.out] == [49.9, 147.1]
    html = page(an_os(), host="h", version="1")
    assert "Out of service for 49.9 s, instead of at least 2 min 27 s out of service: the drain was" in html


def test_a_drain_that_was_measured_is_a_part_of_the_comparison() -> None:
    drained = an_os()
    drained["trail"]["phases"][1] = span("Draining", 98.0, 98.5, 0, -1000)
    found = comparison_of(timeline(drained))
    assert found is not None
    assert (found.usual[0].name, found.missing) == ("drain", ())
    html = page(drained, host="h", version="1")
    assert "Out of service for 59 s, instead of 2 min 28 s out of service. The usual way" in html


def test_an_update_that_was_out_of_service_for_no_less_than_the_usual_way_is_not_compared() -> None:
    """A reboot for files, and a reboot that was not planned, after a restart that failed."""
    assert "Compared with" in page(an_os(), host="h", version="1")
    rebooted = an_os()
    staging = rebooted["trail"]["phases"].pop(0)
    assert staging["name"] == "Staging"
    assert "Compared with" not in page(rebooted, host="h", version="1")
    rebooted["trail"]["steps"] = [span("restart web.service", 98.7, 98.8, 0, -1000, phase="Acting", result="failed")]
    assert "Compared with" not in page(rebooted, host="h", version="1")


def test_a_short_outage_is_enlarged() -> None:
    for entry, title in ((an_os(), "While it was out of service"), (restarts(), "While units were restarted")):
        assert f"<h2>{title}, enlarged</h2>" in page(entry, host="h", version="1")
    long = an_os()
    long["trail"]["phases"][0]["mono"] += 97.0
    long["trail"]["phases"][0]["seconds"] -= 97.0
    assert "enlarged" not in page(long, host="h", version="1")


def test_restarts_are_compared_with_a_reboot_that_was_measured_before() -> None:
    assert comparison_of(timeline(restarts())) is None
    found = comparison_of(timeline(restarts()), MeasuredReboot(48.9, "b"))
    assert found is not None
    assert [round(seconds, 1) for seconds in found.out] == [2.9, 49.1]
    html = page(restarts(), host="h", version="1", other=MeasuredReboot(48.9, "b"))
    assert "measured in the update to b" in html
    assert "Units were restarted within 2.9 s, instead of at least 49.1 s out of service: the drain was" in html
    assert "No reboot of this host has been measured" in page(restarts(), host="h", version="1")


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.mark.parametrize("other", [None, MeasuredReboot(3.0, '"><script>')])
def test_no_text_becomes_markup(other: MeasuredReboot | None) -> None:
    html = page(hostile(), host='"><script>alert(1)</script>', version="<b>", other=other)
    read = _Elements()
    read.feed(html)
    assert read.tags.isdisjoint({"script", "img", "b", "iframe", "a", "link"})
    assert not {name for name in read.attributes if name.startswith("on")}
    assert {"src", "href"}.isdisjoint(read.attributes)


def test_nothing_is_loaded() -> None:
    html = page(an_os(), host="h", version="1")
    assert "default-src &#x27;none&#x27;" in html or "default-src 'none'" in html
    assert not re.search(r"https?://|@import|url\((?!#hatch)", html)


def test_an_update_without_a_trail_has_a_page() -> None:
    html = page(update({}), host="h", version="1")
    assert "was not kept" in html
    assert "<svg" not in html


def test_an_update_under_way_has_a_page() -> None:
    running = restarts()
    running["trail"]["phases"][-1]["seconds"] = None
    running["outcome"] = "under-way"
    assert "Under way for 44.1 s" in page(running, host="h", version="1")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0771, "77 ms"),
        (0.4, "0.4 s"),
        (58.33, "58.3 s"),
        (59.97, "1 min"),
        (157.2, "2 min 37 s"),
        (18_120, "5 h 2 min"),
    ],
)
def test_lengths(seconds: float, words: str) -> None:
    assert length(seconds) == words


@given(st.floats(0.001, 1e6), st.integers(3, 12))
def test_ticks_are_few_and_within(total: float, most: int) -> None:
    found = ticks(total, most)
    assert found[0] == 0
    assert len(found) <= max(most + 1, 2 + total / 86400)
    assert found[-1] <= total * 1.000001


@given(st.lists(st.tuples(st.floats(0, 300), st.integers(10, 120)), min_size=1, max_size=9))
def test_no_leader_crosses_a_name(places: list[tuple[float, int]]) -> None:
    names = [(f"name{x}", x, float(width)) for x, width in sorted(places)]
    labels = hanging(names, 352.0)
    for label in labels:
        assert label.flipped or label.right <= 352.0
        for other in labels:
            if other is not label and other.row == label.row:
                assert other.left > label.right or label.left > other.right
            # A leader goes down to its own row.
            if other.row < label.row and abs(label.x - other.x) > 0.001:
                assert not other.left + 0.001 < label.x < other.right


@given(st.lists(st.tuples(st.floats(0, 300), st.floats(1, 100)), max_size=20))
def test_rows_do_not_overlap(spans: list[tuple[float, float]]) -> None:
    found = [(left, left + width) for left, width in sorted(spans)]
    rows = stacked(found)
    for one, (left, right) in zip(rows, found, strict=True):
        for other, (begin, end) in zip(rows, found, strict=True):
            assert one != other or (left, right) == (begin, end) or right < begin or end < left


@pytest.mark.finding("attack: reads beside others", "A damaged plan in the history does not hide the rest of the page.")
@pytest.mark.parametrize(
    "plan",
    [
        "x",
        ["x"],
        {"changes": "x"},
        {"changes": [None, 7, "x"]},
        {"changes": [{"domain": 1}], "more": "<b>"},
        {"changes": [{"domain": [], "key": {}, "change": None, "actions": 7}]},
        {"changes": [{"actions": [None, {}]}], "more": {}},
    ],
)
def test_a_damaged_plan(plan: object) -> None:
    html = page(update({"plan": plan}), host="h", version="1")
    assert html.endswith("</html>\n")
    assert "<b>" not in html
