# SPDX-License-Identifier: Apache-2.0
"""The member on this host after a change, by the survey of its cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodeagent.core.etcd.quorum import EtcdSurvey, Member, MemberState, member_trouble

GOOD = EtcdSurvey(
    us="17",
    members=(Member("17", "one"), Member("18", "two"), Member("19", "three")),
    states={each: MemberState(leader="18", applied=5000, index=5000) for each in ("17", "18", "19")},
)


def ours(**changes: object) -> EtcdSurvey:
    state = replace(GOOD.states["17"], **changes)  # type: ignore[arg-type]
    return replace(GOOD, states={**GOOD.states, "17": state})


def test_good() -> None:
    assert member_trouble(GOOD, "17") == ""
    assert member_trouble(GOOD) == ""


@pytest.mark.parametrize(
    ("survey", "expected", "words"),
    [
        (replace(GOOD, us="20"), "17", "not one of its cluster"),
        (replace(GOOD, us=""), "", "not one of its cluster"),
        (GOOD, "18", "another member than before: 11, not 12"),
        (replace(GOOD, members=(Member("17", "one", learner=True), *GOOD.members[1:])), "17", "learner"),
        (replace(GOOD, members=(Member("17"), *GOOD.members[1:])), "17", "has not started yet"),
        (replace(GOOD, states={}), "17", "has no known state"),
        (ours(fault="does not answer"), "17", "does not answer"),
        (ours(leader=""), "17", "has no leader"),
        (ours(applied=3999), "17", "1001 entries behind"),
    ],
)
def test_trouble(survey: EtcdSurvey, expected: str, words: str) -> None:
    assert words in member_trouble(survey, expected)


def test_a_small_lag_is_no_trouble() -> None:
    assert member_trouble(ours(applied=4000), "17") == ""
