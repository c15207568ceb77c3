# SPDX-License-Identifier: Apache-2.0
"""What the fence adds to `nodeagent status` and `nodeagent history`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from nodeagent.cli._io import printable
from nodeagent.cli._render import counted, duration
from nodeagent.update.history.trail import Trail


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


def cell(etcd_disk: Mapping[str, Any]) -> str:
    """Return the p99 of etcd's WAL fsync before, during and after the staging; "?" for too few samples."""
    spans = etcd_disk.get("wal_fsync") or {}
    if not spans:
        return ""
    values = (spans.get(span, {}).get("p99_ms") for span in ("before", "during", "after"))
    return " / ".join("?" if value is None else f"{value:g}" for value in values) + " ms"


def facts(etcd_disk: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, spans in etcd_disk.items():
        texts = (_latency(span, latencies) for span, latencies in spans.items())
        yield "etcd", f"{name.replace('_', ' ')}: {'; '.join(texts)}"


def course(trail: Trail) -> Iterator[str]:
    if fence := trail.fence:
        slow = counted(fence.exceedances, "slow fsync")
        yield f"I/O fence: writes limited for {duration(fence.throttled)} of {duration(fence.seconds)}, {slow} of etcd"


def _latency(span: str, latencies: Mapping[str, Any]) -> str:
    p99 = "too few for a p99" if latencies["p99_ms"] is None else f"p99 {latencies['p99_ms']:g} ms"
    return f"{span} {p99} ({counted(latencies['samples'], 'sample')}, {latencies['slow']} slow)"
