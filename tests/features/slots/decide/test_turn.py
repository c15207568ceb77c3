# SPDX-License-Identifier: Apache-2.0
"""Verdicts about the turn of a pool, as they are in the annotations of slots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.coordination.gates import Gate
from nodeagent.core.coordination.kube_time import micro_time
from nodeagent.core.coordination.lease import NodeLease
from nodeagent.features.slots.decide.pool import SLACK, VERDICT, Slot
from nodeagent.features.slots.decide.turn import (
    CHECK,
    COUNTS,
    LONGEST,
    SHOWN,
    UNCHECKED,
    present_verdicts,
    read_verdict,
    refusal,
    verdict_text,
)
from nodeagent.features.slots.reasons import SlotReason

NOW = 1_800_000_000.0
GATE = Gate(SlotReason.POOL_ORDER, "pool a is updated before pool b, and is not complete: n1 (updating)")


def slot(index: int, holder: str = "", *, since: float = NOW, **notes: str) -> Slot:
    lease = NodeLease(
        "u", "1", holder, acquired=micro_time(since), notes={k.replace("_", "-"): v for k, v in notes.items()}
    )
    return Slot(index, lease, "")


def verdict(at: float, pool: str | None = "b") -> str:
    return verdict_text(GATE, pool, at)


@given(
    st.sampled_from([SlotReason.POOL_ORDER, SlotReason.POOL_HALTED]),
    st.text(min_size=1, max_size=2 * LONGEST),
    st.none() | st.from_regex(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?", fullmatch=True),
)
def test_what_is_written_is_read(reason: SlotReason, message: str, pool: str | None) -> None:
    found = read_verdict(verdict_text(Gate(reason, message), pool, NOW))
    assert found is not None
    assert (found.at, found.pool, found.gate.reason) == (NOW, pool, reason)
    assert found.gate.message == message[:LONGEST]


@pytest.mark.parametrize(
    "text",
    ["", "x", "2026-11-28T09:00:00.000000Z", "2026-11-28T09:00:00.000000Z b SlotHeld text", "yesterday b PoolOrder t"],
)
def test_another_text_is_none(text: str) -> None:
    assert read_verdict(text) is None


@given(st.text())
def test_no_text_is_an_error(text: str) -> None:
    read_verdict(text)


@pytest.mark.parametrize(
    ("slots", "counts"),
    [
        ([slot(0, turn=verdict(NOW - COUNTS + 1))], True),
        ([slot(0, turn=verdict(NOW - COUNTS - 1))], False),
        ([slot(0, turn=verdict(NOW + SLACK + 3))], False),
        # While another node checks again, the verdict of before is shown.
        ([slot(0, turn=verdict(NOW - COUNTS - 1)), slot(1, "n/op", turn_unchecked="true")], True),
        ([slot(0, turn=verdict(NOW - SHOWN - 1)), slot(1, "n/op", turn_unchecked="true")], False),
        (
            [slot(0, turn=verdict(NOW - COUNTS - 1)), slot(1, "n/op", since=NOW - CHECK - 1, turn_unchecked="true")],
            False,
        ),
        ([slot(0, turn=verdict(NOW - COUNTS - 1)), slot(1, "n/op")], False),
        ([slot(0, turn=verdict(NOW - COUNTS - 1)), slot(1, turn_unchecked="true")], False),
    ],
)
def test_a_verdict_counts_for_a_while(slots: list[Slot], counts: bool) -> None:
    assert (VERDICT, UNCHECKED) == ("turn", "turn-unchecked")
    assert bool(present_verdicts(slots, NOW, NOW + 1)) == counts


def test_the_newest_verdict_about_the_own_pool() -> None:
    other = verdict_text(Gate(SlotReason.POOL_HALTED, "pool b halts"), "b", NOW - 1)
    verdicts = present_verdicts(
        [slot(0, turn=verdict(NOW - 5)), slot(1, turn=other), slot(2, turn=verdict(NOW, "a"))], NOW, NOW + 1
    )
    refused = refusal(verdicts, "b")
    assert refused is not None
    assert refused.message == "pool b halts"
    assert refusal(verdicts, "c") is None
    assert refusal(present_verdicts([slot(0, turn=verdict(NOW, None))], NOW, NOW + 1), None) is not None
