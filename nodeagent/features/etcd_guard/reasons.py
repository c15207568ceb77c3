# SPDX-License-Identifier: Apache-2.0
"""The reason of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class QuorumReason(ReasonEnum):
    # fmt: off
    ETCD_LEADER_STAYS = "EtcdLeaderStays", Kind.REFUSED, "run etcdctl move-leader to see the error; check the log of etcd", "This member leads etcd, and the leadership did not move to another one."
    # fmt: on
