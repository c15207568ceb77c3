"""Merging kernel arguments: what is asked for is there, in order, once; nothing else moves."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.config.kargs import merged, split

TOKENS = st.lists(st.sampled_from(["a", "a=", "a=1", "a=2", "b", "b=1", "c"]), max_size=6)


@pytest.mark.parametrize(
    ("existing", "wanted", "without", "result"),
    [
        ("root=x quiet", "", "", "root=x quiet"),
        ("root=x quiet", "nosmt", "", "root=x quiet nosmt"),
        ("root=x quiet", "quiet", "", "root=x quiet"),
        ("root=x quiet", "", "quiet absent", "root=x"),
        ("root=x quiet", "quiet", "quiet", "root=x quiet"),  # what is wanted is not without
        ("ostree=/ostree/boot.1/x/y/0 root=x", "", "", "root=x"),
        # The kernel takes the last of a key, so the order of one key has a meaning.
        ("console=tty0 quiet console=ttyS0", "console=ttyS0 console=tty0", "", "quiet console=ttyS0 console=tty0"),
        ("console=tty0 quiet", "console=tty0 console=ttyS0", "", "console=tty0 quiet console=ttyS0"),
        ("console=ttyS0 quiet", "console=tty0 console=ttyS0", "", "quiet console=tty0 console=ttyS0"),
        ("console=hvc0 quiet", "console=tty0", "", "console=hvc0 quiet console=tty0"),
        ("a=1 a=1", "a=1", "", "a=1 a=1"),  # the host's own double stays
        ("a=1", "a=1 a=1", "", "a=1 a=1"),
    ],
)
def test_merging(existing: str, wanted: str, without: str, result: str) -> None:
    assert merged(split(existing), split(wanted), split(without)) == tuple(split(result))


@given(TOKENS, TOKENS, TOKENS)
def test_merging_gives_what_was_asked_for(existing: list[str], wanted: list[str], without: list[str]) -> None:
    result = merged(existing, wanted, without)
    assert not Counter(wanted) - Counter(result)
    assert not set(result) & (set(without) - set(wanted))
    for key in "abc":
        mine = [token for token in wanted if token.partition("=")[0] == key]
        there = iter(token for token in result if token in mine)
        assert all(token in there for token in mine), "in order"


@given(TOKENS, TOKENS, TOKENS)
def test_merging_again_changes_nothing(existing: list[str], wanted: list[str], without: list[str]) -> None:
    once = merged(existing, wanted, without)
    assert merged(once, wanted, without) == once


@given(TOKENS, TOKENS, TOKENS)
def test_unmentioned_arguments_keep_their_order(existing: list[str], wanted: list[str], without: list[str]) -> None:
    spoken = set(wanted) | set(without)
    result = merged(existing, wanted, without)
    assert [t for t in result if t not in spoken] == [t for t in existing if t not in spoken]
