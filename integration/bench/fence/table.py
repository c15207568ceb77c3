"""The variants of a run as a table of Markdown, for the docs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["table"]

_HEAD = "| | what | p50 | p99 | p99.9 | max | sync p99 | over 8/100/500 ms | harm s | staging s | etcd's p99 |"


def table(variants: Mapping[str, Mapping[str, Any]], titles: Mapping[str, str]) -> str:
    """Milliseconds but for harm and staging: medians over the rounds, the worst of all, and harm of each round."""
    rows = [_HEAD, "|---" * (_HEAD.count("|") - 1) + "|"]
    for name, row in variants.items():
        latencies = (f"{row[f'{key}_ms']:.0f}" for key in ("p50", "p99", "p999", "worst", "sync_p99"))
        over = "/".join(str(count) for count in row["over_ms"].values())
        harm = ", ".join(f"{seconds:g}" for seconds in row["harm_s"])
        staging = f"{row['staging_s']:.0f}" if "staging_s" in row else ""
        wal = "" if row["wal_fsync_p99_ms"] is None else f"{row['wal_fsync_p99_ms']:.0f}"
        rows.append("| " + " | ".join((name, titles.get(name, ""), *latencies, over, harm, staging, wal)) + " |")
    return "\n".join(rows) + "\n"
