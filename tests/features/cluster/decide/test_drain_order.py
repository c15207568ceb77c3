# SPDX-License-Identifier: Apache-2.0
"""The order of a drain: what a selector matches, which pods go now, and when the first one may."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.features.cluster.decide.drain_order import (
    SELECTOR,
    SLACK,
    DrainOrder,
    DrainStep,
    begins_at,
    is_note_of,
    lead_left,
    lead_note,
    matches,
    present_step,
)

NOW = 1_795_000_000.0


def pod(**labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "ns", "labels": labels}}


@pytest.mark.parametrize(
    ("selector", "labels", "found"),
    [
        ("app=db", {"app": "db"}, True),
        ("app=db", {"app": "web"}, False),
        ("app=db", {}, False),
        ("app!=db", {"app": "web"}, True),
        ("app!=db", {"app": "db"}, False),
        ("app!=db", {}, True),
        ("app", {"app": ""}, True),
        ("app", {}, False),
        ("!app", {}, True),
        ("!app", {"app": ""}, False),
        ("app=", {"app": ""}, True),
        ("app=", {}, False),
        ("app=db,role!=primary", {"app": "db", "role": "replica"}, True),
        ("app=db,role!=primary", {"app": "db", "role": "primary"}, False),
        ("longhorn.io/component=instance-manager", {"longhorn.io/component": "instance-manager"}, True),
    ],
)
def test_a_selector(selector: str, labels: dict[str, str], found: bool) -> None:
    assert re.fullmatch(SELECTOR, selector)
    assert matches(selector, labels) is found


@pytest.mark.parametrize(
    "text",
    ["", ",", "app=db,", "app in (a)", "app==db", "a b", "=db", "!app=db", "/x", "-a", "a/b/c", "app=-", "x" * 64],
)
def test_not_a_selector(text: str) -> None:
    assert not re.fullmatch(SELECTOR, text)


ORDER = DrainOrder(("go=first", "app=proxy"), ("app=storage",))


@pytest.mark.parametrize(
    ("what", "step"),
    [
        (pod(go="first"), DrainStep.FIRST),
        (pod(app="proxy"), DrainStep.FIRST),
        (pod(app="web"), DrainStep.USUAL),
        ({"metadata": {"name": "bare"}}, DrainStep.USUAL),
        (pod(app="storage"), DrainStep.LAST),
        (pod(app="storage", go="first"), DrainStep.LAST),
    ],
)
def test_the_step_of_a_pod(what: dict[str, Any], step: DrainStep) -> None:
    assert ORDER.step(what) is step
    assert DrainOrder().step(what) is DrainStep.USUAL


labels = st.dictionaries(st.sampled_from(["go", "app"]), st.sampled_from(["first", "proxy", "storage", "web"]))


@given(st.lists(labels))
def test_no_pod_goes_before_one_of_an_earlier_step(every: list[dict[str, str]]) -> None:
    pods = [pod(**one) for one in every]
    step = present_step(ORDER, pods)
    assert all(ORDER.step(one) >= step for one in pods)
    assert not pods or any(ORDER.step(one) == step for one in pods), "some pod goes"


@given(st.lists(labels), st.randoms())
def test_every_pod_goes_whatever_the_order_of_the_lists(every: list[dict[str, str]], random: Any) -> None:
    left = [pod(**one) for one in every]
    steps = []
    while left:
        random.shuffle(left)
        step = present_step(ORDER, left)
        steps.append(step)
        left = [one for one in left if ORDER.step(one) != step]
    assert steps == sorted(set(steps))


@pytest.mark.parametrize(
    "note",
    ["", "3f2b", "now 3f2b", " 3f2b", "2026-11-24T02:00:00 3f2b", lead_note("other", NOW, 0), "2026-11-24T02:00:00Z"],
)
def test_an_unknown_begin_is_written_again(note: str) -> None:
    assert lead_left(note, "3f2b", NOW, NOW, 60) is None


def test_a_begin_that_is_too_far_away_is_written_again() -> None:
    assert lead_left(lead_note("3f2b", NOW, 3600), "3f2b", NOW, NOW, 60) is None
    assert lead_left(lead_note("3f2b", NOW, 60 + SLACK - 1), "3f2b", NOW, NOW, 60) is not None


def test_the_note_is_a_time_for_others() -> None:
    note = lead_note("3f2b", NOW + 0.2, 60)
    assert begins_at(note) == "2026-11-18T11:07:41Z"
    assert is_note_of(note, "3f2b")
    assert not is_note_of(note, "3f2")


@given(
    true=st.floats(0, 4e9),
    lead_time=st.floats(1, 86400),
    passed=st.floats(0, 200_000),
    before=st.tuples(st.floats(0, 30), st.floats(0, 30)),
    after=st.tuples(st.floats(0, 30), st.floats(0, 30)),
)
def test_nothing_is_evicted_before_the_lead_time_has_passed(
    true: float, lead_time: float, passed: float, before: tuple[float, float], after: tuple[float, float]
) -> None:
    """Whatever the bounds of the two readings of the server's clock are, of one process or of two."""
    note = lead_note("3f2b", true + before[1], lead_time)
    left = lead_left(note, "3f2b", true + passed - after[0], true + passed + after[1], lead_time)
    if left is not None and left <= 0:
        assert passed >= lead_time - 1e-3
    if left is None:
        assert passed < before[1] + 1, "only a reading that was much too late is written again"
