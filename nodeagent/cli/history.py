"""`nodeagent history`: list past updates with their outcome, duration and reboots, show one, and compare two."""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import Any

from nodeagent.cli import _offline, logs
from nodeagent.cli._client import ask
from nodeagent.cli._io import emit, printable
from nodeagent.cli._render import GOOD, OUTCOMES, clock, counted, duration, local_now, local_times, paint, table

# The daemon returns at most this many. The totals are over these.
ALL = 1000
SHOWN = 20
# Characters of an id, which are enough to name an update.
ID = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="history_command", metavar="COMMAND")
    shown = commands.add_parser("show", help="show one update: phases, actions, waits, and the reason in full")
    shown.add_argument("id", metavar="ID", nargs="?", default="", help="its id, or the beginning (default: the newest)")
    shown.add_argument("--json", action="store_true", help="one JSON object (nodeagent/update/v1)")
    compared = commands.add_parser("diff", help="show what differs between two updates")
    compared.add_argument("id", metavar="ID", help="the id of an update, or its beginning")
    compared.add_argument("other", metavar="OTHER", help="the id of another one")
    compared.add_argument("--json", action="store_true", help="one JSON object (nodeagent/history-diff/v1)")
    parser.add_argument("--json", action="store_true", help="one JSON object (nodeagent/history/v1)")
    parser.add_argument(
        "--limit", type=_count, default=SHOWN, metavar="N", help="show the last N updates (default: %(default)s)"
    )


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= ALL:
        raise argparse.ArgumentTypeError(f"must be a number from 1 to {ALL}")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Return 0, also without an update, or without a difference."""
    if args.history_command:
        return _show_one(args) if args.history_command == "show" else _diff(args)
    # All of them, whatever the limit: the totals are over all updates.
    updates = ask(lambda client: client.history(ALL), lambda why: _offline.history(why, ALL))
    totals = _totals(updates)
    if args.json:
        emit({"schema": "nodeagent/history/v1", "updates": updates[: args.limit], "totals": totals})
    else:
        _show(updates[: args.limit], totals)
    return 0


def _show_one(args: argparse.Namespace) -> int:
    from nodeagent.cli._update_view import update_lines

    update = logs.find(args.id)
    if args.json:
        emit(update)
    else:
        print("\n".join(update_lines(update, local_now())))
    return 0


def _diff(args: argparse.Namespace) -> int:
    from nodeagent.cli._update_view import differences

    first, second = logs.find(args.id), logs.find(args.other)
    rows = differences(first, second)
    ids = [update["update_id"] for update in (first, second)]
    if args.json:
        found = [{"what": what, "a": one, "b": other} for what, one, other in rows]
        emit({"schema": "nodeagent/history-diff/v1", "a": ids[0], "b": ids[1], "differences": found})
    elif rows:
        table(["WHAT", *(update_id[:ID] for update_id in ids)], [[printable(cell) for cell in row] for row in rows])
    else:
        print("the two updates do not differ")
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
    headers = ["ID", "STARTED", "TOOK", "TO", "OUTCOME", "PLANNED", "REBOOTS"]
    rows = [_row(update, now) for update in updates]
    # Most hosts have no etcd.
    if any(update.get("etcd_disk") for update in updates):
        headers.append("ETCD FSYNC P99")
        for row, update in zip(rows, updates, strict=True):
            row.append(_fsyncs(update.get("etcd_disk") or {}))
    table(headers, rows, right=(6,), below=[_why(update, now) for update in updates])
    avoided = paint(f"{counted(totals['reboots_avoided'], 'reboot')} avoided", GOOD)
    print(f"\n{counted(totals['updates'], 'update')}, {counted(totals['reboots'], 'reboot')}, {avoided}")


def _row(update: dict[str, Any], now: datetime) -> list[str]:
    soft = update.get("soft_reboots", 0)
    how = "soft" if soft == update["reboots"] else f"{soft} soft"
    reboots = f"{update['reboots']} ({how})" if soft else str(update["reboots"])
    # A reboot is avoided only by an update that made none, so the count is replaced.
    if update["reboot_avoided"]:
        reboots = "0 (1 avoided)"
    return [
        update["update_id"][:ID],
        clock(update["started"], now),
        duration(update["seconds"]),
        printable(update["to_name"]),
        paint(update["outcome"], OUTCOMES.get(update["outcome"], "")),
        update["disruption"],
        reboots,
    ]


def _why(update: dict[str, Any], now: datetime) -> list[str]:
    why = ": ".join(part for part in (update["reason"], update["message"]) if part)
    return [local_times(printable(why), now)] if why else []


def _fsyncs(etcd_disk: dict[str, Any]) -> str:
    """Return the p99 of etcd's WAL fsync before, during and after the staging; "?" for too few samples."""
    spans = etcd_disk.get("wal_fsync") or {}
    if not spans:
        return ""
    values = (spans.get(span, {}).get("p99_ms") for span in ("before", "during", "after"))
    return " / ".join("?" if value is None else f"{value:g}" for value in values) + " ms"
