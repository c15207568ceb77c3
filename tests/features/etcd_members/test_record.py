# SPDX-License-Identifier: Apache-2.0
"""The note and the operation of a member survive the store, and what is damaged is no note."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.errors import Cause
from nodeagent.features.etcd_members.decide.membership import (
    MemberNote,
    MemberOperation,
    OperationKind,
    note_from_text,
    operation_from_text,
    to_text,
)
from nodeagent.reasons import Reason

IDS = st.one_of(st.just(""), st.integers(1, 2**64 - 1).map(str))
NOTES = st.builds(MemberNote, IDS, IDS, st.booleans())
OPERATIONS = st.builds(
    MemberOperation,
    st.text(max_size=8),
    st.sampled_from(OperationKind),
    st.text(max_size=20),
    st.just("2026-01-01T00:00:00.000Z"),
    IDS,
    IDS,
    st.booleans(),
    st.none() | st.builds(Cause, st.sampled_from(Reason), st.text(max_size=20)),
)


@given(NOTES)
def test_a_note(note: MemberNote) -> None:
    assert note_from_text(to_text(note)) == note
    newer = json.dumps({**json.loads(to_text(note)), "of a newer agent": 1})
    assert note_from_text(newer) == note


@given(OPERATIONS)
def test_an_operation(operation: MemberOperation) -> None:
    assert operation_from_text(to_text(operation)) == operation


def test_nothing() -> None:
    assert note_from_text("") == MemberNote()
    assert operation_from_text("") is None


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        '"x"',
        '{"member": 1}',
        '{"member": "-1"}',
        '{"member": "ff"}',
        '{"cluster": "x"}',
        '{"left": 1}',
    ],
)
def test_a_damaged_note(text: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        note_from_text(text)


@pytest.mark.parametrize(
    "change",
    [{"kind": "dance"}, {"kind": None}, {"since": "now"}, {"since": "2026-01-01T00:00:00"}, {"since": 1}, {"id": 1},
     {"begun": "yes"}, {"remove": "x"}, {"added": 7}, {"failed": []}],
)  # fmt: skip
def test_a_damaged_operation(change: dict[str, object]) -> None:
    whole = json.loads(to_text(MemberOperation("1", OperationKind.JOIN, "root", "2026-01-01T00:00:00Z")))
    with pytest.raises((ValueError, TypeError)):
        operation_from_text(json.dumps({**whole, **change}))
