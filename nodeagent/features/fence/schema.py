# SPDX-License-Identifier: Apache-2.0
"""The JSON of the feature, see ``nodeagent.contract``."""

from __future__ import annotations

from typing import Annotated, Final

from nodeagent.contract.keys import Keys, about


class Fence(Keys):
    active: Annotated[bool, about("whether it limits writes of a staging if etcd becomes slow")]
    write_bps: Annotated[int | None, about("limit in bytes per second; null for none")]
    write_iops: Annotated[int | None, about("limit in writes per second; null for none")]
    victim_p99_ms: Annotated[float | None, about("p99 of the last fsyncs of etcd; null if it is not known")]
    exceedances: Annotated[int, about("slow fsyncs of etcd since the beginning")]
    throttled_seconds: Annotated[float, about("time with a limit")]
    seconds: Annotated[float, about("time since the beginning")]
    reason: Annotated[str, about("why there is this limit, or why there is no fence")]
    message: Annotated[str, about("the reason in words")]
    source: Annotated[str, about("where the latency comes from; empty if it is not known")]
    missing: Annotated[list[str], about("facilities that the fence lacks on this host")]


STATUS: Final = {"fence": Annotated[Fence | None, about("the I/O fence of a staging; null without one")]}
