# SPDX-License-Identifier: Apache-2.0
"""The row of the fence in `nodeagent status`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from nodeagent.cli._io import printable


def rows(part: Mapping[str, Any], _now: datetime) -> Iterator[tuple[str, str]]:
    yield "fence", printable(_text(part))


def _text(fence: Mapping[str, Any]) -> str:
    if not fence["active"]:
        return f"not active: {fence.get('message', '')}"
    write = fence["write_bps"]
    cap = "writes are not capped" if write is None else f"writes at most {write / 1e6:.0f} MB/s"
    p99 = "" if fence["victim_p99_ms"] is None else f", etcd p99 {fence['victim_p99_ms']} ms"
    slow = f", {fence['exceedances']} slow" if fence["exceedances"] else ""
    return f"{cap}{p99}{slow}, capped for {fence['throttled_seconds']:.0f} s ({fence['reason']}: {fence['message']})"
