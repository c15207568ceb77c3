# SPDX-License-Identifier: Apache-2.0
"""When a node of a pool may begin after another one has released its slot."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.coordination.kube_time import micro_time
from nodeagent.core.coordination.lease import Claim
from nodeagent.features.slots.decide.pool import (
    SLACK,
    Slot,
    SlotKind,
    SlotPool,
    free_indices,
    new_slot,
    pool_pause,
    read_slots,
    released,
    taken,
)

CLAIM = Claim("nodeagent", "3f2b", "update", "host-a")
POOL = SlotPool("workers", SlotKind.DISRUPT, 2, 60)
NOW = 1_795_000_000.0


def merged(item: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    item = dict(item) if isinstance(item, dict) else {}
    for key, value in patch.items():
        if value is None:
            item.pop(key, None)
        else:
            item[key] = merged(item.get(key), value)
    return item


def held(index: int = 0) -> dict[str, Any]:
    made = new_slot(POOL, index, CLAIM, "n", "u", 0.0)
    made["metadata"] |= {"uid": f"lease-{index}", "resourceVersion": "1"}
    return made


def free(note: str | None, index: int = 0) -> Slot:
    item = merged(held(index), released(read_slots(POOL, [held(index)])[0], "n", NOW))
    if note is None:
        del item["metadata"]["annotations"]
    else:
        item["metadata"]["annotations"] = {"nodeagent.org/released": note}
    return read_slots(POOL, [item])[0]


def never(_: Slot) -> float:
    raise AssertionError


def test_a_released_slot_has_no_holder_no_owner_and_its_time() -> None:
    item = merged(held(), released(read_slots(POOL, [held()])[0], "n", NOW))
    assert item["metadata"]["annotations"] == {"nodeagent.org/released": f"{micro_time(NOW)} n"}
    assert "ownerReferences" not in item["metadata"]
    (slot,) = read_slots(POOL, [item])
    assert not slot.held
    assert free_indices(POOL, [slot], 0) == [0, 1]
    again = merged(item, taken(slot, CLAIM, "m", "v", NOW))
    (held_again,) = read_slots(POOL, [again])
    assert held_again.held
    assert again["metadata"]["annotations"]["nodeagent.org/released"] == f"{micro_time(NOW)} n"
    earlier = merged(again, released(held_again, "m", NOW - 60))
    assert earlier["metadata"]["annotations"]["nodeagent.org/released"] == f"{micro_time(NOW)} m", "never earlier"


def test_the_pause_names_node_begin_and_end() -> None:
    found = pool_pause([free(f"{micro_time(NOW)} worker-1")], 60, NOW + 20, NOW + 21, never)
    assert found is not None
    assert (found.left, found.node) == (40, "worker-1")
    assert (found.since, found.until) == ("2026-11-18T11:06:40Z", "2026-11-18T11:07:40Z")


@pytest.mark.parametrize("slots", [[], [read_slots(POOL, [held()])[0]]], ids=["none", "held"])
def test_no_pause_without_a_released_slot(slots: list[Slot]) -> None:
    assert pool_pause(slots, 60, NOW, NOW, never) is None


def test_no_pause_if_none_is_set() -> None:
    assert pool_pause([free(f"{micro_time(NOW)} n")], 0, NOW, NOW, never) is None


def test_the_last_release_counts() -> None:
    slots = [free(f"{micro_time(NOW)} early"), free(f"{micro_time(NOW + 30)} late", 1)]
    found = pool_pause(slots, 60, NOW + 40, NOW + 40, never)
    assert found is not None
    assert (found.left, found.node) == (50, "late")


@pytest.mark.parametrize(
    "note", [None, "", "n", "yesterday n", f"{micro_time(NOW + SLACK + 1)} n", "2026-11-24T02:00:00 n"]
)
def test_a_release_at_an_unknown_time_is_waited_for_from_now_on(note: str | None) -> None:
    for seen in (0.0, 59.0):
        found = pool_pause([free(note)], 60, NOW, NOW, lambda _, seen=seen: seen)
        assert found is not None
        assert (found.left, found.until) == (60 - seen, "")
    assert pool_pause([free(note)], 60, NOW, NOW, lambda _: 60.0) is None


bounds = st.tuples(st.floats(0, 30), st.floats(0, 30))
notes = st.one_of(st.none(), st.text(max_size=20), st.floats(-1e4, 1e4).map(lambda at: f"{micro_time(NOW + at)} n"))


@given(pause=st.floats(1, 86400), passed=st.floats(0, 200_000), before=bounds, after=bounds)
def test_no_node_begins_before_the_pause_has_passed(
    pause: float, passed: float, before: tuple[float, float], after: tuple[float, float]
) -> None:
    """Whatever the bounds are that the two agents have of the server's clock."""
    item = merged(held(), released(read_slots(POOL, [held()])[0], "n", NOW + before[1]))
    slots = read_slots(POOL, [item])
    at = NOW + passed
    if pool_pause(slots, pause, at - after[0], at + after[1], lambda _: 0.0) is None:
        assert passed >= pause - 1e-3


@given(st.lists(notes, max_size=2), notes, st.floats(-1e5, 1e5), st.floats(1, 1e5), st.floats(0, 1e5))
def test_one_more_slot_or_a_lost_time_never_allows_more(
    some: list[str | None], one: str | None, at: float, pause: float, seen: float
) -> None:
    now = NOW + at
    few = [free(note, index) for index, note in enumerate(some)]
    before = pool_pause(few, pause, now, now, lambda _: seen)
    more = pool_pause([*few, free(one, 2)], pause, now, now, lambda _: seen)
    assert before is None or (more is not None and more.left >= before.left)
    just_seen = pool_pause([free(None)], pause, now, now, lambda _: 0.0)
    known = pool_pause([free(one)], pause, now, now, lambda _: 0.0)
    assert just_seen is not None
    assert known is None or known.left <= just_seen.left + SLACK
