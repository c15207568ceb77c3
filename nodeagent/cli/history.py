"""`nodeagent history`: list past updates with their outcome, duration and reboots."""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import Any

from nodeagent.cli import _offline
from nodeagent.cli._client import ask
from nodeagent.cli._io import emit, printable
from nodeagent.cli._render import BAD, GOOD, WARN, ago, clock, counted, duration, local_now, paint, table
from nodeagent.errors import Unreachable

__all__ = ["add_arguments", "run"]

# The daemon returns at most this many. The totals are over these.
ALL = 1000
SHOWN = 20
STYLES = {
    "done": GOOD,
    "done-after-fallback": WARN,
    "reverted": BAD,
    "degraded": BAD,
    "superseded": WARN,
    "withdrawn": WARN,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object (nodeagent/history/v1)")
    parser.add_argument(
        "--limit", type=_count, default=SHOWN, metavar="N", help="show the last N updates (default: %(default)s)"
    )


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= ALL:
        raise argparse.ArgumentTypeError(f"must be a number from 1 to {ALL}")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Return 0, also without an update."""
    try:
        updates = ask(lambda client: client.history(ALL))
    except Unreachable as why:
        updates = _offline.history(why, ALL)
    totals = _totals(updates)
    if args.json:
        emit({"schema": "nodeagent/history/v1", "updates": updates[: args.limit], "totals": totals})
    else:
        _show(updates[: args.limit], totals)
    return 0


def _totals(updates: list[dict[str, Any]]) -> dict[str, int]:
    return {
        "updates": len(updates),
        "reboots": sum(update["reboots"] for update in updates),
        "reboots_avoided": sum(update["reboot_avoided"] for update in updates),
    }


def _show(updates: list[dict[str, Any]], totals: dict[str, int]) -> None:
    if not updates:
        print("no update yet")
        return
    now = local_now()
    headers = ["STARTED", "AGO", "TOOK", "TO", "OUTCOME", "PLANNED", "REBOOTS", "WHY"]
    rows = [_row(update, now) for update in updates]
    if any(update.get("etcd_disk") for update in updates):
        headers.insert(7, "ETCD FSYNC P99")
        for row, update in zip(rows, updates, strict=True):
            row.insert(7, _fsyncs(update.get("etcd_disk") or {}))
    table(headers, rows, right=(6,))
    avoided = paint(f"{counted(totals['reboots_avoided'], 'reboot')} avoided", GOOD)
    print(f"\n{counted(totals['updates'], 'update')}, {counted(totals['reboots'], 'reboot')}, {avoided}")


def _row(update: dict[str, Any], now: datetime) -> list[str]:
    reboots = "0 (avoided)" if update["reboot_avoided"] else str(update["reboots"])
    why = ": ".join(part for part in (update["reason"], update["message"]) if part)
    return [
        clock(update["started"], now),
        ago(update["started"], now).removesuffix(" ago"),
        duration(update["seconds"]),
        printable(update["to_name"]),
        paint(update["outcome"], STYLES.get(update["outcome"], "")),
        update["disruption"],
        reboots,
        printable(why),
    ]


def _fsyncs(etcd_disk: dict[str, Any]) -> str:
    """Return the p99 of etcd's WAL fsync before, during and after the staging; "?" for too few samples."""
    spans = etcd_disk.get("wal_fsync") or {}
    if not spans:
        return ""
    values = (spans.get(span, {}).get("p99_ms") for span in ("before", "during", "after"))
    return " / ".join("?" if value is None else f"{value:g}" for value in values) + " ms"
