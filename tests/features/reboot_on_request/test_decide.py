# SPDX-License-Identifier: Apache-2.0
"""Requests for a reboot as data: a boot of the kernel answers one, and the more urgent one holds."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.errors import InvalidInput, Terminal
from nodeagent.features.reboot_on_request.decide import (
    MAX_TEXT,
    Noted,
    RebootRequest,
    RequestSource,
    after_boot,
    check_text,
    from_text,
    holds,
    may_follow,
    to_text,
)

KERNEL = "0d3f4c1e-6a0b-4c55-9f5f-000000000001"
SINCE = "2026-01-01T00:00:00.000Z"
PLAIN = RebootRequest("r1", RequestSource.FILE, "/run/x", SINCE, KERNEL)
NOW = replace(PLAIN, id="r2", source=RequestSource.OPERATOR, at_once=True)
LATER = replace(PLAIN, id="r3", source=RequestSource.OPERATOR, options={"not_before": SINCE})
OTHERS = st.sampled_from([source for source in RequestSource if source is not RequestSource.OPERATOR])
REQUESTS = st.builds(
    RebootRequest,
    st.text(max_size=9),
    st.sampled_from(RequestSource),
    st.text(max_size=9),
    st.just(SINCE),
    st.sampled_from([KERNEL, f"{KERNEL}+1", "two"]),
    at_once=st.booleans(),
    options=st.sampled_from([{}, {"not_before": SINCE}]),
)


@pytest.mark.parametrize(("boot", "answered"), [(KERNEL, False), (f"{KERNEL}+2", False), ("two", True), ("", True)])
def test_a_boot_of_the_kernel_answers_a_request_and_a_soft_reboot_does_not(boot: str, answered: bool) -> None:
    assert PLAIN.is_answered(boot) is answered
    noted = Noted(PLAIN, by_file="", answered="v")
    assert (after_boot(noted, boot).pending is None) is answered
    assert after_boot(noted, boot).answered == "v"


@given(REQUESTS, st.sampled_from([KERNEL, f"{KERNEL}+1", "two"]))
def test_a_request_is_answered_once(request: RebootRequest, boot: str) -> None:
    after = after_boot(Noted(request), boot)
    assert after_boot(after, boot) is after
    assert bool(after.by_file) is (after.pending is None and request.source in ("file", "reboot-required"))


@given(REQUESTS, REQUESTS)
def test_one_of_two_requests_holds_and_an_urgent_one_is_never_lost(pending: RebootRequest, new: RebootRequest) -> None:
    held = holds(pending, new)
    assert held in (pending, new)
    if new.source is RequestSource.OPERATOR:
        assert held is new
    else:
        assert held.urgency == max(pending.urgency, new.urgency)
    assert holds(None, new) is new


def test_a_program_does_not_move_what_an_operator_requested() -> None:
    assert holds(NOW, PLAIN) is NOW
    assert holds(LATER, PLAIN) is PLAIN, "a boot answers both"
    assert holds(NOW, LATER) is LATER, "an operator may request another time"


@pytest.mark.parametrize(
    ("seconds", "pause", "may"), [(0, 60, False), (59, 60, False), (60, 60, True), (-10, 60, False), (0, 0, True)]
)
def test_a_file_requests_no_reboot_soon_after_the_last_one(seconds: int, pause: float, may: bool) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    assert may_follow(Noted(by_file=SINCE), now.isoformat(), pause) is may
    assert may_follow(Noted(), now.isoformat(), pause)


@given(st.none() | REQUESTS, st.sampled_from(["", SINCE]), st.text(max_size=5))
def test_the_note_is_read_as_it_was_written(pending: RebootRequest | None, by_file: str, value: str) -> None:
    noted = Noted(pending, KERNEL, by_file, value)
    assert from_text(to_text(noted)) == noted


@pytest.mark.parametrize(
    "text", ["x", "[]", '{"pending": 1}', '{"by_file": "2026-01-01T00:00:00"}', '{"by_file": "soon"}']
)
def test_a_damaged_note_is_an_error(text: str) -> None:
    with pytest.raises(Terminal):
        from_text(text)


def test_a_reason_is_one_line_of_limited_length() -> None:
    assert check_text("  a new kernel ") == "a new kernel"
    for text in ("a\nb", "\x1b[31m", "x" * (MAX_TEXT + 1)):
        with pytest.raises(InvalidInput):
            check_text(text)
