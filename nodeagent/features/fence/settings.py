# SPDX-License-Identifier: Apache-2.0
"""The settings of the feature."""

from __future__ import annotations

from typing import Literal

from nodeagent.settings.part import Part


class FenceSettings(Part, frozen=True, forbid_unknown_fields=True):
    """``enabled``: when the writes of an OS update are limited. auto: on hosts with a member of etcd whose data is on
    the disk of the OS. always: on all hosts; without etcd, a probe measures the disk. never: a staging writes without
    limits, for hosts whose etcd is slow for another reason. auto is the default because other hosts have no known
    workload that suffers, and limits slow the update."""

    group = "fence"

    enabled: Literal["auto", "always", "never"] = "auto"
