# SPDX-License-Identifier: Apache-2.0
"""Merging orders that lists ask for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.plan.plan import merge_orders


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ([], ""),
        (["c", "a", "b"], "abc"),
        (["ba"], "ba"),
        (["ca", "ab"], "cab"),
        (["bd", "ac"], "abcd"),
        (["ab", "bc", "cd"], "abcd"),
        (["dc", "cb", "ba"], "dcba"),
        (["aba"], "ab"),
        # Contradictions: by name, but what depends on the circle still comes after it, and what precedes it before.
        (["ab", "ba"], "ab"),
        (["zb", "ba", "ab", "a0"], "zab0"),
        (["bc", "cb", "ca"], "bca"),
    ],
)
def test_table(lists: list[str], expected: str) -> None:
    assert "".join(merge_orders(lists)) == expected


names = st.lists(st.sampled_from("abcdefg"), max_size=5)


@given(st.lists(names, max_size=6), st.randoms())
def test_every_name_once_whatever_the_order_of_the_lists(lists: list[list[str]], random: st.DataObject) -> None:
    result = merge_orders(lists)
    assert sorted(result) == sorted({name for names in lists for name in names})
    shuffled = lists.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert merge_orders(shuffled) == result


@given(st.permutations("abcdefg"), st.data())
def test_lists_that_agree_are_all_kept(truth: list[str], data: st.DataObject) -> None:
    picks = data.draw(st.lists(st.sets(st.sampled_from(truth)), max_size=6))
    lists = [[name for name in truth if name in pick] for pick in picks]
    result = merge_orders(lists)
    for names in lists:
        assert [name for name in result if name in names] == names
