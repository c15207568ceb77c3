# SPDX-License-Identifier: Apache-2.0
"""Fallback reboots have a budget over time that no clock unlocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.update.history.lasting import REBOOTS, WINDOW, Budget


def test_the_budget_is_used_up_and_comes_back_after_a_window() -> None:
    budget = Budget()
    for number in range(REBOOTS):
        assert budget.left
        budget = budget.counted("boot", float(number), 0.0).spend()
    assert not budget.left
    assert not budget.counted("boot", WINDOW - 1, 0.0).left
    assert budget.counted("boot", WINDOW, 0.0).left, "the first of them is over"


def test_time_adds_up_over_boots_and_starts_of_the_agent() -> None:
    budget = Budget().counted("one", 100.0, 100.0).spend()
    budget = budget.counted("one", 160.0, 150.0)
    assert budget.seen == 60.0, "a restart of the agent in the same boot loses no time"
    budget = budget.counted("two", 30.0, 10.0)
    assert budget.seen == 80.0, "in another boot it counts from the start of the agent"


def test_a_steady_clock_that_belongs_to_the_machine_makes_no_room() -> None:
    """A container shares it: each boot of it begins with weeks on the clock."""
    budget = Budget()
    for boot in range(20):
        began = 30 * WINDOW + 60.0 * boot
        budget = budget.counted(f"boot-{boot}", began + 5.0, began).spend()
    assert budget.seen == 100.0
    assert (len(budget.spent), budget.left) == (REBOOTS, False)


steps = st.lists(st.tuples(st.integers(0, 3), st.floats(-1e6, 1e6), st.floats(0, 60)), max_size=60)


@pytest.mark.finding(
    "updates: budget of fallback reboots", "Neither boots nor clocks unlock the budget of fallback reboots."
)
@given(steps)
def test_never_more_than_the_budget_in_a_window(steps: list[tuple[int, float, float]]) -> None:
    """Whatever the steady clock shows when a boot begins, and however short the boots are."""
    budget, ran, moments = Budget(), 0.0, list[float]()
    for number, (more, base, seconds) in enumerate(steps):
        now = base
        for _ in range(more + 1):
            now, ran = now + seconds, ran + seconds
            budget = budget.counted(f"boot-{number}", now, base)
            if budget.left:
                budget = budget.spend()
                moments.append(ran)
    for first, later in zip(moments, moments[REBOOTS:], strict=False):
        assert later - first >= WINDOW - 1e-3
