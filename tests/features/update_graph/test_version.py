# SPDX-License-Identifier: Apache-2.0
"""The order of versions."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.features.update_graph.decide.release import VERSION, version_key

# Each is older than the next one.
ORDERED = (
    "4.9.0",
    "4.18.0-ec.3",
    "4.18.0-rc.0",
    "4.18.0-rc.1",
    "4.18.0-rc.10",
    "4.18.0",
    "4.18.1",
    "9.6.20250523-0",
    "9.6.20250523-1",
    "10",
    "10.0.20260101-0",
    "39.20231101.3.0",
    "41.20241027.3.0",
    "41.20241109.1.0",
    "42",
    "42.1",
    "418.94.202501221327-0",
)

versions = st.from_regex(re.compile(VERSION), fullmatch=True)


def test_versions_of_the_field_are_in_order() -> None:
    for older, newer in pairwise(ORDERED):
        assert version_key(older) < version_key(newer)


def test_build_metadata_does_not_count() -> None:
    assert version_key("1.2.3+build.7") == version_key("1.2.3")


@given(versions, versions, versions)
def test_it_is_an_order(a: str, b: str, c: str) -> None:
    first, second, third = sorted(map(version_key, (a, b, c)))
    assert first <= second <= third
    assert first <= third
