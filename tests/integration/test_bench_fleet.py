# SPDX-License-Identifier: Apache-2.0
"""The cost of a fleet grows with its nodes, and no faster: the benchmark of it, with small sizes."""

from __future__ import annotations

import pytest

from integration.bench.fleet import course, waiting_line
from integration.bench.fleet.virtual import exponent, run

MOST = 1.1
SIZES = (15, 30, 60)


@pytest.mark.parametrize(("power", "counts"), [(1.0, (3, 6, 12)), (2.0, (1, 4, 16)), (0.0, (5, 5, 5))])
def test_the_exponent_of_a_growth(power: float, counts: tuple[int, ...]) -> None:
    assert exponent(SIZES, counts) == pytest.approx(power)


@pytest.mark.finding(
    "cluster: cost of a failed attempt",
    "The requests of a roll-out with a slot for so many nodes grow as the number of nodes.",
)
def test_the_requests_of_a_rollout() -> None:
    found = [run(course.roll_out(nodes, nodes // 15, 60.0)) for nodes in SIZES]
    assert exponent(SIZES, [each["requests"] for each in found]) <= MOST
    assert all(each["texts_per_node"] <= 1.0 for each in found), "one for the wait"
    assert all(each["longer_than_ideal"] < 0.5 for each in found)
    waits = [each["by_kind"]["LIST leases"] for each in found]
    assert all(each["requests"] - asked < 30 * each["nodes"] for each, asked in zip(found, waits, strict=True)), (
        "all but the look for a slot does not depend on the wait"
    )


@pytest.mark.finding(
    "cluster: connections at rest", "An agent at rest sends less than one request in 50 seconds, and watches its Node."
)
def test_the_requests_at_rest() -> None:
    found = [run(course.at_rest(nodes, 600.0)) for nodes in SIZES]
    assert exponent(SIZES, [each["requests_per_second"] for each in found]) <= MOST
    assert all(each["requests_per_second_and_node"] <= 0.02 for each in found)


@pytest.mark.finding(
    "cluster: a queue of thousands", "Nodes that wait send few requests, report their wait once, and no slot is idle."
)
def test_the_requests_of_nodes_that_wait() -> None:
    """A fifth of 5,000 nodes and 50 slots, for which the aim is 100 requests a second."""
    found = waiting_line.queue(1_000, 10, 600.0, 900.0)
    assert found["requests_per_second"] <= 20  # type: ignore[operator]
    assert found["texts_per_node"] <= 1.0  # type: ignore[operator]
    assert found["idle_share_of_slots"] < 0.01  # type: ignore[operator]
