# SPDX-License-Identifier: Apache-2.0
"""Data of any origin as declared types. ``make versions`` runs all tests with the oldest msgspec as well."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import msgspec
import pytest

from nodeagent import typed
from nodeagent.reasons import AnyReason, Reason

NESTED = 100_000


class Point(msgspec.Struct):
    x: Annotated[int, msgspec.Meta(ge=0)]
    reason: AnyReason | None = None


class Tree(msgspec.Struct):
    below: list[Tree]


def test_both_forms() -> None:
    expected = Point(1, Reason.STORE_CORRUPT)
    assert typed.convert({"x": 1, "reason": "StoreCorrupt", "newer": True}, Point) == expected
    assert typed.from_json('{"x": 1, "reason": "StoreCorrupt", "newer": true}', Point) == expected


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"x": -1}', '{"x": "1"}', '{"x": 1, "reason": 2}', "{}", "[" * NESTED],
    ids=lambda text: text[:20] or "empty",
)
def test_each_fault_of_json_is_one_kind_of_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        typed.from_json(text, Point)


@pytest.mark.parametrize("data", [None, [], {"x": -1}, {"x": 1, "reason": 2}, {1: 2}])
def test_each_fault_of_plain_data_is_one_kind_of_error(data: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        typed.convert(data, Point)


def test_data_that_is_nested_too_deep() -> None:
    data: dict[str, Any] = {"below": []}
    for _ in range(sys.getrecursionlimit() * 10):
        data = {"below": [data]}
    with pytest.raises(ValueError, match=r"."):
        typed.convert(data, Tree)
