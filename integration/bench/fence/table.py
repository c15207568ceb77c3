# SPDX-License-Identifier: Apache-2.0
"""The variants of a run as tables of Markdown, for the docs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["others", "table"]

_HEAD = (
    "| | what | p50 | p99 | p99.9 | max | sync p99 | over 8/100/500 ms | harm s | after: max, harm s"
    " | staging s | etcd's p99 |"
)

_PROGRAMS = {"puts": "a put into etcd", "reads": "a third program's read", "writes": "its write, synced"}


def table(variants: Mapping[str, Mapping[str, Any]], titles: Mapping[str, str]) -> str:
    """Milliseconds but for harm and staging: medians over the rounds, the worst of all, and harm of each round."""
    rows = [_HEAD, "|---" * (_HEAD.count("|") - 1) + "|"]
    for name, row in variants.items():
        latencies = (f"{row[f'{key}_ms']:.0f}" for key in ("p50", "p99", "p999", "worst", "sync_p99"))
        over = "/".join(str(count) for count in row["over_ms"].values())
        harm = ", ".join(f"{seconds:g}" for seconds in row["harm_s"])
        staging = f"{row['staging_s']:.0f}" if "staging_s" in row else ""
        after = ""
        if "after_harm_s" in row:
            after = f"{row['after_worst_ms']:.0f}, " + "+".join(f"{seconds:g}" for seconds in row["after_harm_s"])
        wal = "" if row["wal_fsync_p99_ms"] is None else f"{row['wal_fsync_p99_ms']:.0f}"
        rows.append("| " + " | ".join((name, titles.get(name, ""), *latencies, over, harm, after, staging, wal)) + " |")
    return "\n".join(rows) + "\n"


def others(variants: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the other measurements, a column for each variant: p50, p99 and the worst of all; milliseconds."""
    rows = ["| p50/p99/max, ms | " + " | ".join(variants) + " |", "|---" * (len(variants) + 1) + "|"]
    for name in dict.fromkeys(name for row in variants.values() for name in row["others"]):
        found = (row["others"].get(name) for row in variants.values())
        cells = ("" if t is None else f"{t['p50_ms']:.0f}/{t['p99_ms']:.0f}/{t['worst_ms']:.0f}" for t in found)
        rows.append("| " + " | ".join((_PROGRAMS.get(name, name), *cells)) + " |")
    return "\n".join(rows) + "\n"
