# SPDX-License-Identifier: Apache-2.0
"""Paths with ``*`` in entries of a policy.

A ``*`` is any run of characters within one name of the path, also an empty one. It never matches a ``/``, nor the dot
at the beginning of a name. A name has one ``*`` at most, so that a match needs no search, and it is decidable at a
glance whether two patterns have a path in common. A pattern matches whole paths only, nothing below them.
"""

from __future__ import annotations


def is_pattern(path: str) -> bool:
    return "*" in path


def pattern_problem(path: str) -> str:
    """Return why this is no valid pattern, "" if it is one, or has no ``*``."""
    if any(name.count("*") > 1 for name in path.split("/")):
        return "must not have more than one * in a name; an entry for a directory matches everything below it"
    return ""


def specificity(pattern: str) -> int:
    """Return the number of characters that a path must have literally. Among patterns, the highest wins."""
    # As among directories, where the longest one wins.
    return len(pattern) - pattern.count("*")


def matches(pattern: str, path: str) -> bool:
    wanted, names = pattern.split("/"), path.split("/")
    return len(wanted) == len(names) and all(map(_name_matches, wanted, names))


def _name_matches(wanted: str, name: str) -> bool:
    before, star, after = wanted.partition("*")
    if not star:
        return wanted == name
    if not before and name.startswith("."):
        # ``*`` and ``*.conf`` skip hidden files, as in a shell, but ``.*`` matches them.
        return False
    return len(name) >= len(before) + len(after) and name.startswith(before) and name.endswith(after) and name != ""


def overlap(pattern: str, other: str) -> bool:
    """Return whether some path matches both patterns."""
    names, others = pattern.split("/"), other.split("/")
    return len(names) == len(others) and all(map(_names_overlap, names, others))


def _names_overlap(name: str, other: str) -> bool:
    if "*" not in other:
        return _name_matches(name, other)
    if "*" not in name:
        return _name_matches(other, name)
    (before, _, after), (other_before, _, other_after) = name.partition("*"), other.partition("*")
    if not (before and other_before) and (before or other_before).startswith("."):
        return False
    # With a ``*`` in both, the longer beginning and the longer end together match both.
    return (before.startswith(other_before) or other_before.startswith(before)) and (
        after.endswith(other_after) or other_after.endswith(after)
    )
