"""The settings of the I/O fence, which limits the disk I/O of an OS update for etcd. Part of ``settings``."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

__all__ = ["FenceSettings"]


class FenceSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """``enabled``: when the writes of an OS update are limited. auto: on hosts with a member of etcd whose data is on
    the disk of the OS. always: on all hosts; without etcd, a probe measures the disk. never: a staging writes without
    limits, for hosts whose etcd is slow for another reason. auto is the default because other hosts have no known
    workload that suffers, and limits slow the update."""

    enabled: Literal["auto", "always", "never"] = "auto"
