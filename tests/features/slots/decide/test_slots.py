# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.coordination.lease import Claim
from nodeagent.features.slots.decide.pool import SlotKind, SlotPool, free_indices, held_by, new_slot, read_slots, taken

CLAIM = Claim("nodeagent", "3f2b", "update", "host-a")


def item(pool: SlotPool, index: int, *, holder: str = "n/3f2b", uid: str = "u") -> dict[str, Any]:
    made = new_slot(pool, index, CLAIM, "n", uid, 0.0)
    made["metadata"] |= {"uid": f"lease-{index}", "resourceVersion": "1"}
    made["spec"]["holderIdentity"] = holder
    return made


@given(st.integers(1, 6), st.sets(st.integers(0, 9)), st.integers(0, 100))
def test_there_are_never_more_holders_than_slots(count: int, held: set[int], first: int) -> None:
    pool = SlotPool("workers", SlotKind.DISRUPT, count)
    free = free_indices(pool, read_slots(pool, [item(pool, index) for index in held]), first)
    assert not set(free) & held
    assert all(index < count for index in free)
    assert len(free) + len(held) <= max(count, len(held)), "also if all who look at once take one"
    assert held & set(range(count, 10)) or len(free) == count - len(held)


def test_nodes_that_try_at_the_same_time_begin_with_different_slots() -> None:
    pool = SlotPool("workers", SlotKind.DISRUPT, 4)
    slots = read_slots(pool, [item(pool, 1)])
    assert [free_indices(pool, slots, first) for first in range(4)] == [[0, 2, 3], [2, 3, 0], [3, 0, 2], [0, 2, 3]]
    full = read_slots(pool, [item(pool, index) for index in range(4)])
    assert free_indices(pool, full, 1) == []


def test_what_is_a_slot_of_the_pool() -> None:
    pool, other = SlotPool("workers", SlotKind.STAGE, 2), SlotPool("workers-1", SlotKind.STAGE, 2)
    items = [item(pool, 10), item(pool, 2), item(other, 0), {"metadata": {"name": "slot-stage-workers-01"}}]
    assert [slot.index for slot in read_slots(pool, items)] == [2, 10]


def test_one_without_a_holder_is_free() -> None:
    pool = SlotPool("workers", SlotKind.DISRUPT, 1)
    slots = read_slots(pool, [item(pool, 0, holder="")])
    assert free_indices(pool, slots, 0) == [0]
    assert held_by(slots, "u", "host-a") == []
    assert taken(slots[0], CLAIM, "n", "u", None)["metadata"]["resourceVersion"] == "1"


def test_a_slot_belongs_to_a_node_and_a_host() -> None:
    pool = SlotPool("workers", SlotKind.DISRUPT, 2)
    slots = read_slots(pool, [item(pool, 0), item(pool, 1, uid="other")])
    assert [slot.index for slot in held_by(slots, "u", "host-a")] == [0]
    assert held_by(slots, "u", "host-b") == []


@pytest.mark.parametrize(
    ("name", "count"), [("", 1), ("Workers", 1), ("a/b", 1), ("-a", 1), ("a" * 41, 1), ("workers", 0)]
)
def test_what_is_no_pool(name: str, count: int) -> None:
    with pytest.raises(ValueError, match="pool"):
        SlotPool(name, SlotKind.DISRUPT, count)
