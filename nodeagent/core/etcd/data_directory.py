# SPDX-License-Identifier: Apache-2.0
"""What the data directory of a member of etcd has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """The ids of a member and of its cluster, as decimal strings."""

    member: str
    cluster: str


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """``present``: it has a directory ``member``. ``identity`` is that of its write-ahead log, None if it has none."""

    present: bool = False
    identity: Identity | None = None
