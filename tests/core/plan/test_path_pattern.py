# SPDX-License-Identifier: Apache-2.0
"""Patterns of paths: what they match, and which two have a path in common."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.plan.change import Change, ChangeKind
from nodeagent.core.plan.path_pattern import is_pattern, matches, overlap, pattern_problem, specificity
from nodeagent.core.plan.policy import NONE, REBOOT, Entry, MatchKind, Policy, match, merge

letters = st.text(alphabet="ab.", max_size=3)
names = st.text(alphabet="ab.", min_size=1, max_size=5)
paths = st.lists(names, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))
stars = st.tuples(letters, letters).map("*".join)
patterns = st.lists(st.one_of(names, stars), min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))


@pytest.mark.parametrize(
    ("pattern", "path", "matched"),
    [
        ("/etc/ssh/sshd_config.d/*.conf", "/etc/ssh/sshd_config.d/50-x.conf", True),
        ("/etc/ssh/sshd_config.d/*.conf", "/etc/ssh/sshd_config.d/50-x.conf/y", False),
        ("/etc/ssh/sshd_config.d/*.conf", "/etc/ssh/sshd_config.d/sub/50-x.conf", False),
        ("/etc/ssh/sshd_config.d/*.conf", "/etc/ssh/sshd_config.d/.conf", False),
        ("/etc/x/*", "/etc/x/.hidden", False),
        ("/etc/x/.*", "/etc/x/.hidden", True),
        ("/etc/*/x", "/etc/a/x", True),
        ("/etc/aXa*a", "/etc/aXa", False),
        ("/etc/chrony*", "/etc/chrony", True),
        ("/etc/chrony*", "/etc/chrony.d/x", False),
        ("/etc/[ab]*", "/etc/a", False),
    ],
)
def test_examples(pattern: str, path: str, matched: bool) -> None:
    assert matches(pattern, path) is matched


def test_a_name_has_one_star() -> None:
    assert pattern_problem("/etc/*/*.conf") == ""
    assert "more than one *" in pattern_problem("/etc/*a*")
    assert "more than one *" in pattern_problem("/etc/**")


@given(patterns, paths)
def test_a_match_is_that_of_a_regular_expression(pattern: str, path: str) -> None:
    names = [re.escape(name).replace(r"\*", "[^/]*") for name in pattern.split("/")]
    hidden = [f"(?!\\.){name}" if name.startswith("[^/]*") else name for name in names]
    assert matches(pattern, path) is (re.fullmatch("/".join(hidden), path) is not None)


@pytest.mark.parametrize(
    ("one", "other", "has"),
    [
        ("/etc/x/*.conf", "/etc/x/.a*", False),
        ("/etc/x/.a*", "/etc/x/*", False),
        ("/etc/x/.*", "/etc/x/.a*", True),
        ("/etc/x/a*", "/etc/x/*b", True),
    ],
)
def test_a_star_at_the_beginning_has_no_hidden_file_in_common(one: str, other: str, has: bool) -> None:
    assert overlap(one, other) is has


def filled(pattern: str, other: str) -> list[str]:
    """Return paths that try the beginnings and ends of both patterns."""
    found = [""]
    for one, two in zip(pattern.split("/")[1:], other.split("/")[1:], strict=True):
        parts = [name.partition("*") for name in (one, two)]
        names = {
            one,
            two,
            *(a[0] + b[2] for a in parts for b in parts),
            *(a[0] + "a" + b[2] for a in parts for b in parts),
        }
        # A name that both match needs both beginnings, one within the other, and both ends.
        names |= {max(a[0] for a in parts) + "a" + b[2] for b in parts}
        found = [f"{path}/{name}" for path in found for name in names if "*" not in name]
    return found


@given(patterns, patterns)
def test_overlap_means_a_common_path(one: str, other: str) -> None:
    assert overlap(one, other) is overlap(other, one)
    if one.count("/") != other.count("/"):
        assert not overlap(one, other)
        return
    common = [path for path in filled(one, other) if matches(one, path) and matches(other, path)]
    assert overlap(one, other) is bool(common)


def policy(*keys: str) -> Policy:
    entries = [Entry(key, (NONE,)) for key in keys]
    return Policy(
        files={entry.key: entry for entry in entries if not is_pattern(entry.key)},
        patterns={entry.key: entry for entry in entries if is_pattern(entry.key)},
    )


@given(st.lists(st.one_of(paths, patterns), unique=True, max_size=6), paths)
def test_the_strongest_match_wins(keys: list[str], path: str) -> None:
    found = match(policy(*keys), Change("file", path, ChangeKind.MODIFIED))
    fitting = [key for key in keys if is_pattern(key) and matches(key, path)]
    above = [key for key in keys if path.startswith(f"{key}/")]
    if path in keys:
        assert found is not None
        assert (found.kind, found.entry.key) == (MatchKind.EXACT, path)
    elif fitting:
        assert found is not None
        assert found.kind is MatchKind.PATTERN
        assert specificity(found.entry.key) == max(map(specificity, fitting))
    elif above:
        assert found is not None
        assert (found.kind, found.entry.key) == (MatchKind.DIRECTORY, max(above, key=len))
    else:
        assert found is None


def test_the_later_of_two_equally_specific_patterns_wins() -> None:
    change = Change("file", "/etc/ab", ChangeKind.MODIFIED)
    first, second = (
        Policy(patterns={key: Entry(key, (action,))}) for key, action in (("/etc/a*", NONE), ("/etc/*b", REBOOT))
    )
    for merged, key in ((merge(first, second), "/etc/*b"), (merge(second, first), "/etc/a*")):
        found = match(merged, change)
        assert found is not None
        assert found.entry.key == key
    # An entry that is replaced is as strong as the file that replaces it.
    found = match(merge(merge(first, second), first), change)
    assert found is not None
    assert found.entry.key == "/etc/a*"
