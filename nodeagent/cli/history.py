# SPDX-License-Identifier: Apache-2.0
"""`nodeagent history`: list past updates with their outcome, duration and reboots, show one, and compare two."""

from __future__ import annotations

import argparse
from collections.abc import Hashable, Iterator
from datetime import datetime
from typing import Any, Final

from nodeagent.cli import logs
from nodeagent.cli._client import ask
from nodeagent.cli._features import columns, course_lines, facts
from nodeagent.cli._io import emit, printable
from nodeagent.cli._plan_view import POLICY, details_text
from nodeagent.cli._render import (
    BAD,
    DIM,
    GOOD,
    OUTCOMES,
    STRONG,
    WARN,
    ago,
    change_name,
    clock,
    counted,
    duration,
    local_now,
    local_times,
    paint,
    table,
    wrapped,
)
from nodeagent.core.display import other_boots
from nodeagent.core.plan.change import ActionType, Change, ChangeKind, Detail
from nodeagent.reasons import hint
from nodeagent.report.plan_groups import grouped
from nodeagent.update.history.trail import Span, Trail, elapsed, gap_before, trail_from_dict

# The daemon returns at most this many. The totals are over these.
ALL: Final = 1000
# Updates of a list, and changes of a plan.
SHOWN: Final = 20
# Characters of an id, which are enough to name an update.
ID: Final = 8
# Columns of the time line.
SCALE: Final = 24
RESULTS: Final = {"failed": BAD, "skipped": DIM}


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
    updates = ask(lambda client: client.history(ALL), lambda stored: stored.history(ALL))
    totals = _totals(updates)
    if args.json:
        emit({"schema": "nodeagent/history/v1", "updates": updates[: args.limit], "totals": totals})
    else:
        _show(updates[: args.limit], totals)
    return 0


def _show_one(args: argparse.Namespace) -> int:
    update = logs.find(args.id)
    if args.json:
        emit(update)
    else:
        print("\n".join(update_lines(update, local_now())))
    return 0


def _diff(args: argparse.Namespace) -> int:
    first, second = logs.find(args.id), logs.find(args.other)
    rows = _differences(first, second)
    ids = [update["update_id"] for update in (first, second)]
    if args.json:
        differences = [{"what": what, "a": in_first, "b": in_second} for what, in_first, in_second in rows]
        emit({"schema": "nodeagent/history-diff/v1", "a": ids[0], "b": ids[1], "differences": differences})
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
    for header, cells in columns(updates):
        headers.append(header)
        rows = [[*row, cell] for row, cell in zip(rows, cells, strict=True)]
    table(headers, rows, right=(6,), below=[_why(update, now) for update in updates])
    avoided = paint(f"{counted(totals['reboots_avoided'], 'reboot')} avoided", GOOD)
    print(f"\n{counted(totals['updates'], 'update')}, {counted(totals['reboots'], 'reboot')}, {avoided}")


def _row(update: dict[str, Any], now: datetime) -> list[str]:
    soft, other = update.get("soft_reboots", 0), other_boots(update)
    notes = [f"{other} not requested"] if other else []
    if soft:
        notes.insert(0, "soft" if soft == update["reboots"] else f"{soft} soft")
    if update["reboot_avoided"]:
        notes.insert(0, "1 avoided")
    reboots = str(update["reboots"]) + (f" ({', '.join(notes)})" if notes else "")
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
    cause = ": ".join(part for part in (update["reason"], update["message"]) if part)
    return [local_times(printable(cause), now)] if cause else []


def update_lines(update: dict[str, Any], now: datetime) -> list[str]:
    """``update`` is a ``nodeagent/update/v1`` object."""
    rows = list(_facts(update, now))
    width = max(len(label) for label, _ in rows)
    trail = trail_from_dict(update["trail"])
    lines: list[str] = []
    for label, text in rows:
        first, *others = wrapped(local_times(text, now), width + 2)
        lines += [f"{label.ljust(width)}  {first}", *(f"{' ' * width}  {other}" for other in others)]
    # Times of the day of the update have no date.
    began = datetime.fromisoformat(update["started"]).astimezone(now.tzinfo)
    return lines + [local_times(line, began) for line in _course(trail, began)]


def _facts(update: dict[str, Any], now: datetime) -> Iterator[tuple[str, str]]:
    outcome = update["outcome"]
    yield "update", update["update_id"]
    yield "outcome", paint(outcome, OUTCOMES.get(outcome, "")) + _reboots(update)
    yield "config", printable(f"{update['to_name']}, from {update['from_name'] or 'nothing'}")
    yield (
        "started",
        f"{clock(update['started'], now)}, {ago(update['started'], now)}; took {duration(update['seconds'])}",
    )
    if update["reason"] or update["message"]:
        yield "why", printable(": ".join(filter(None, (update["reason"], update["message"]))))
    if update["reason"]:
        yield "what now", paint(hint(update["reason"], printable(update.get("failed_unit", ""))), STRONG)
    if update["successor"]:
        yield "instead", printable(update["successor"])
    yield "planned", update["disruption"] + _actions(update["plan"])
    yield from _changes(update["plan"])
    if update["plan"].get("os"):
        yield "OS", printable(update["plan"]["os"])
    yield from facts(update)


def _changes(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the rows of the changes, grouped as those of a plan."""
    rows = grouped(plan.get("changes", ()), _change_of, _likeness)
    for row in rows[:SHOWN]:
        change = row.first
        actions = ", ".join(change["actions"]) or "None"
        policy = POLICY.get(change["policy"], change["policy"])
        yield "change", printable(f"{change['change']} {change_name(row.what)} ({policy}): {actions}")
        details = [[Detail(**detail) for detail in item.get("details", ())] for item in row.items]
        yield from (("", f"  {text}") for text in details_text(details))
    if (more := sum(len(row.items) for row in rows[SHOWN:]) + plan.get("more", 0)) > 0:
        yield "change", f"{more} more (--json has them)"


def _change_of(change: dict[str, Any]) -> Change:
    # The kind of a change by a newer agent may be unknown here. Rows that differ in it differ in their likeness.
    return Change(change["domain"], change["key"], ChangeKind.MODIFIED)


def _likeness(change: dict[str, Any]) -> Hashable:
    return change["change"], change["policy"], tuple(change["actions"])


def _reboots(update: dict[str, Any]) -> str:
    other = other_boots(update)
    others = f", {counted(other, 'boot')} that the agent did not request" if other else ""
    if update["reboot_avoided"]:
        return f", a reboot was avoided{others}"
    notes = ["a fallback"] if update.get("fallback") else []
    if soft := update.get("soft_reboots"):
        notes.append(f"{soft} of them soft" if update["reboots"] > 1 else "a soft one")
    how = f" ({', '.join(notes)})" if notes else ""
    return (f", {counted(update['reboots'], 'reboot')}{how}" if update["reboots"] else "") + others


def _actions(plan: dict[str, Any]) -> str:
    actions = [action for action in plan.get("actions", ()) if action != ActionType.NONE]
    return f": {', '.join(map(printable, actions))}" if actions else ""


def _course(trail: Trail, now: datetime) -> Iterator[str]:
    """Yield the phases, with their steps and waits below them, and the time in which the host was down."""
    if not trail.phases:
        return
    starts = _starts(trail)
    # An update that was refused at once has no length, by which the bars are divided.
    total = max(elapsed(trail) or 0.0, starts[-1] + trail.boots[-1].last - trail.boots[-1].seen, 0.001)
    yield ""
    boot = 0
    for index, phase in enumerate(trail.phases):
        # After power cuts, a boot may have no phase of its own.
        while boot < phase.boot:
            boot += 1
            gap = gap_before(trail, boot)
            text = f"down for {duration(gap)}" if gap is not None else "down; the clock was set back"
            yield paint(f"{'':8}  {'':{SCALE}}  {'':8}  {text}, until the agent ran in the next boot", DIM)
        begin = starts[phase.boot] + phase.mono - trail.boots[phase.boot].seen
        cause = ": ".join(filter(None, (phase.reason, phase.message)))
        head = f"{clock(phase.at, now)}  {_scaled(begin, phase.seconds, total)}  {_length(phase):>8}  "
        yield head + paint(phase.name, STRONG) + (f"  {printable(cause)}" if cause else "")
        yield from _within(trail, index, now)
    if trail.writes:
        yield f"{counted(trail.writes, 'file')} written, units and passwords included"
    for trail_boot in trail.boots:
        for _, seconds in trail_boot.clock_steps:
            yield f"the wall clock was set by {seconds:+g} s; the lengths are those of the boot's own clock"
    yield from course_lines(trail)
    if trail.omitted:
        yield f"{trail.omitted} items in the middle are left out"


def _within(trail: Trail, index: int, now: datetime) -> Iterator[str]:
    phase = trail.phases[index]
    after = trail.phases[index + 1] if index + 1 < len(trail.phases) else None
    items = [*((span, True) for span in trail.waits), *((span, False) for span in trail.steps)]
    for span, waits in sorted(items, key=lambda item: (item[0].boot, item[0].mono)):
        # A span belongs to the phase in which it began. Its place is a boot and a steady time, because the wall clock
        # may have been set.
        begun = (phase.boot, phase.mono) <= (span.boot, span.mono)
        if not begun or (after and (span.boot, span.mono) >= (after.boot, after.mono)):
            continue
        cause = ": ".join(filter(None, (span.reason, span.message)))
        what = f"waited: {cause}" if waits else f"{span.name}" + (f": {span.result}" if span.result != "done" else "")
        what += f", {cause}" if cause and not waits else ""
        line = f"{clock(span.at, now)}  {'':{SCALE}}  {_length(span):>8}    {printable(what)}"
        yield paint(line, WARN) if waits else paint(line, RESULTS.get(span.result, ""))


def _length(span: Span) -> str:
    return "..." if span.seconds is None else duration(span.seconds)


def _starts(trail: Trail) -> list[float]:
    """Return the seconds from the beginning of the update to the first sign of life in each boot."""
    starts = [0.0]
    for index in range(1, len(trail.boots)):
        before = trail.boots[index - 1]
        starts.append(starts[-1] + before.last - before.seen + (gap_before(trail, index) or 0.0))
    return starts


def _scaled(begin: float, seconds: float | None, total: float) -> str:
    """Return a bar to scale, at least one column wide."""
    first = min(SCALE - 1, int(SCALE * begin / total))
    last = SCALE if seconds is None else max(first + 1, round(SCALE * (begin + seconds) / total))
    last = min(last, SCALE)
    return paint("·" * first, DIM) + "█" * (last - first) + paint("·" * (SCALE - last), DIM)


def _differences(first: dict[str, Any], second: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the differences of two updates, as (name, text of the first, text of the second)."""
    facts = [_comparable(update) for update in (first, second)]
    names = dict.fromkeys(name for facts_of_update in facts for name in facts_of_update)
    rows = [(name, facts[0].get(name, "-"), facts[1].get(name, "-")) for name in names]
    return [row for row in rows if row[1] != row[2]]


def _comparable(update: dict[str, Any]) -> dict[str, str]:
    trail = trail_from_dict(update["trail"])
    facts = {
        "to": update["to_name"],
        "from": update["from_name"] or "-",
        "outcome": update["outcome"],
        "why": ": ".join(filter(None, (update["reason"], update["message"]))) or "-",
        "took": duration(update["seconds"]),
        "planned": update["disruption"],
        "actions": ", ".join(update["plan"].get("actions", ())) or "-",
        "reboots": str(update["reboots"]) + (" (1 avoided)" if update["reboot_avoided"] else ""),
        "boots not requested": str(other_boots(update)),
        "files written": str(trail.writes),
    }
    for change in update["plan"].get("changes", ()):
        facts[f"{change['domain']}:{change['key']}"] = f"{change['change']}: {', '.join(change['actions']) or 'None'}"
    for name in dict.fromkeys(phase.name for phase in trail.phases):
        facts[f"in {name}"] = duration(sum(phase.seconds or 0.0 for phase in trail.phases if phase.name == name))
    waited = sum(span.seconds or 0.0 for span in trail.waits)
    return facts | ({"waited": duration(waited)} if trail.waits else {})
