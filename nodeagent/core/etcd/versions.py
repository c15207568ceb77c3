# SPDX-License-Identifier: Apache-2.0
"""Versions of etcd, and which of them a member may run."""

from __future__ import annotations

import re
from typing import Final

_VERSION: Final = re.compile(r"v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})(?:[-+.].{0,60})?")


def parse_version(text: str) -> tuple[int, ...]:
    """Return major, minor and patch release; () if the text is no version."""
    match = _VERSION.fullmatch(text)
    return tuple(map(int, match.groups())) if match else ()


def image_version(image: str) -> str:
    """Return the version in the tag of an image, "" if it has none: the tag may be a name, or only a digest."""
    # A colon before the last slash is that of the port of a registry.
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    return ".".join(map(str, parse_version(tag)))


def change_problem(cluster: str, new: str) -> str:
    """Return why a member must not run ``new`` in a cluster of the version ``cluster``; "" for an unknown version."""
    # The version of a cluster is that of its oldest member, so a way back is open until the last member is changed.
    ours, theirs = parse_version(new), parse_version(cluster)
    if not ours or not theirs or ours[:2] == theirs[:2]:
        return ""
    if ours[:2] < theirs[:2]:
        return (
            f"etcd {new} cannot read the data of a cluster of version {cluster}; etcdctl downgrade enable "
            f"{ours[0]}.{ours[1]}.0 prepares a cluster of etcd 3.6 or later for it"
        )
    if ours[0] != theirs[0] or ours[1] > theirs[1] + 1:
        return f"etcd {new} skips a minor release: all members must run the next one after {cluster} first"
    return ""
