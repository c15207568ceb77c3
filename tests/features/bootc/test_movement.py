# SPDX-License-Identifier: Apache-2.0
"""When a pull counts as standing still."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodeagent.features.bootc.decide.movement import LEAST_BYTES, LEAST_WORK, Consumed, Movement, needed_layers

TEXTS = json.loads((Path(__file__).parents[3] / "integration/hosts/ostree/bootc_texts.json").read_text())


def test_bytes_or_work_are_movement() -> None:
    movement = Movement()
    assert not movement.moved(Consumed(0, 0))
    assert movement.moved(Consumed(LEAST_BYTES, 0))
    assert not movement.moved(Consumed(LEAST_BYTES, LEAST_WORK - 1))
    assert movement.moved(Consumed(LEAST_BYTES, LEAST_WORK))
    assert not movement.moved(Consumed(LEAST_BYTES, LEAST_WORK))


def test_little_adds_up() -> None:
    movement = Movement()
    assert [movement.moved(Consumed(each * LEAST_BYTES // 3, 0)) for each in range(1, 8)] == [
        False, False, True, False, False, True, False,
    ]  # fmt: skip


def test_a_connection_that_is_only_kept_alive_stands_still() -> None:
    movement = Movement()
    movement.moved(Consumed(10**9, 10**12))
    # For half an hour, 200 bytes in 15 seconds, and two milliseconds of timers in each.
    looks = range(1, 121)
    assert not any(movement.moved(Consumed(10**9 + 200 * n, 10**12 + 2_000_000 * n)) for n in looks)


@pytest.mark.parametrize("counted", [Consumed(None, None), Consumed(None, LEAST_WORK), Consumed(LEAST_BYTES, None)])
def test_what_is_not_counted_decides_nothing(counted: Consumed) -> None:
    assert Movement().moved(counted)


def test_one_counter_is_enough_to_stand_still() -> None:
    for counted in (Consumed(None, 5), Consumed(5, None)):
        assert not Movement().moved(counted)


@pytest.mark.parametrize(
    ("output", "layers"),
    [
        (TEXTS["pulled"], 2),
        (TEXTS["no changes"], 0),
        ("layers stored: 3 needed: 51 (1.2\xa0GB)\n", 51),
        ("", 0),
        ("error: needed: all of it\n", 0),
    ],
)
def test_how_many_layers_are_needed(output: str, layers: int) -> None:
    assert needed_layers(output) == layers
