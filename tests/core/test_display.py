# SPDX-License-Identifier: Apache-2.0
"""Words that others have chosen, as people get to see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.display import MAX_TEXT, displayable, text
from nodeagent.update.states import Phase


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a package manager", "a package manager"),
        ("naïve größe 更新", "naïve größe 更新"),
        ("two\nlines\r\n", "two lines  "),
        ("\x1b]0;title\x07\x1b[2J", "\\x1b]0;title\\x07\\x1b[2J"),
        ("a\u202egnp.exe", "a\\u202egnp.exe"),
        ("\x00\x7f\x9b1m", "\\x00\\x7f\\x9b1m"),
        ("\ud800", "\\ud800"),
    ],
)
def test_characters(given: str, shown: str) -> None:
    assert text(given) == shown


@given(st.text(max_size=3000), st.integers(min_value=1, max_value=100))
def test_any_text_is_harmless(value: str, limit: int) -> None:
    for shown, most in ((text(value), MAX_TEXT), (text(value, limit), limit)):
        assert shown.isprintable()
        assert len(shown) <= most
        assert text(shown, most) == shown


@dataclass(frozen=True)
class Inner:
    name: str
    number: int = 1


@dataclass(frozen=True)
class Outer:
    phase: Phase
    inner: tuple[Inner, ...]
    facts: dict[str, Any]


def test_every_text_in_a_value() -> None:
    value = Outer(Phase.IDLE, (Inner("a"), Inner("b\n")), {"k\x1b": ["x\n", 1, None], "in": Inner("c\n")})
    assert displayable(value) == Outer(
        Phase.IDLE, (Inner("a"), Inner("b ")), {"k\\x1b": ["x ", 1, None], "in": Inner("c ")}
    )


def test_what_is_harmless_is_the_same_object() -> None:
    value = Outer(Phase.IDLE, (Inner("a"),), {"k": ["x"], "p": Phase.ACTING})
    assert displayable(value) is value
