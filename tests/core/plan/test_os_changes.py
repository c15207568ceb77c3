# SPDX-License-Identifier: Apache-2.0
"""What a staged deployment changes: the object of the status, and the phrase. A part that is not known is none."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.core.plan.os_changes import (
    MAX_LISTED,
    FileCounts,
    OsChanges,
    PackageChange,
    PackageChangeKind,
    os_changes_to_dict,
    summary,
)

SAME_ARGUMENTS = "kernel arguments same"
CHANGED = (
    PackageChange("a", PackageChangeKind.ADDED, "", "1"),
    PackageChange("b", PackageChangeKind.UPGRADED, "1", "2"),
    PackageChange("c", PackageChangeKind.UPGRADED, "1", "2"),
)


@pytest.mark.parametrize(
    ("parts", "phrases"),
    [
        ({}, []),
        ({"packages": ()}, ["packages same"]),
        ({"packages": CHANGED}, ["packages 1 added, 2 upgraded"]),
        ({"files": FileCounts(1, 2, 3)}, ["files below /usr: 1 added, 2 removed, 3 changed"]),
        ({"packages": (), "files": FileCounts(1, 2, 3)}, ["packages same"]),
        ({"kernel": ("6.1", "6.1")}, ["kernel 6.1 same"]),
        ({"kernel": ("6.1", "6.2")}, ["kernel 6.1 -> 6.2"]),
        ({"same_initramfs": True}, ["initramfs same"]),
        ({"same_initramfs": False}, ["initramfs differs"]),
    ],
)
def test_the_phrases_before_the_arguments(parts: dict[str, Any], phrases: list[str]) -> None:
    assert summary(OsChanges("ostree:1", **parts)) == "; ".join([*phrases, SAME_ARGUMENTS])


@pytest.mark.parametrize(
    ("parts", "phrases"),
    [
        ({"same_selinux_policy": True}, ["SELinux policy same"]),
        ({"same_selinux_policy": False}, ["SELinux policy differs"]),
        ({"merged": ()}, []),
        ({"merged": ("/etc/a",)}, ["the merge of /etc replaces /etc/a"]),
        ({"fetched": 0}, []),
        ({"fetched": 1_500_000}, ["1.5 MB pulled"]),
    ],
)
def test_the_phrases_after_the_arguments(parts: dict[str, Any], phrases: list[str]) -> None:
    assert summary(OsChanges("ostree:1", **parts)) == "; ".join([SAME_ARGUMENTS, *phrases])


def test_the_arguments() -> None:
    changes = OsChanges("ostree:1", arguments_added=("a=1",), arguments_removed=("a=0", "b"))
    assert summary(changes) == "kernel arguments -a=0 -b +a=1"


def test_what_is_not_known_is_none() -> None:
    data = os_changes_to_dict(OsChanges("ostree:1"))
    unknown = ("counts", "packages", "files", "kernel", "merged", "merged_count", "fetched_bytes")
    assert [data[key] for key in unknown] == [None] * len(unknown)
    assert (data["staged"], data["kernel_arguments"]) == ("ostree:1", {"added": [], "removed": []})


def test_lists_are_cut_and_counts_are_complete() -> None:
    many = MAX_LISTED + 1
    packages = [PackageChange(str(number), PackageChangeKind.REMOVED, "1") for number in range(many)]
    merged = tuple(f"/etc/{number}" for number in range(many))
    changes = OsChanges("ostree:1", packages, FileCounts(0, 0, 0), ("6.1", "6.2"), merged=merged)
    data = os_changes_to_dict(changes)
    assert (len(data["packages"]), len(data["merged"]), data["merged_count"]) == (MAX_LISTED, MAX_LISTED, many)
    assert data["counts"] == {"added": 0, "removed": many, "upgraded": 0, "downgraded": 0}
    assert data["kernel"] == {"before": "6.1", "after": "6.2"}
    assert data["files"] == {"added": 0, "removed": 0, "changed": 0}
