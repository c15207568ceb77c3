"""One update of the history for an operator: its outcome, its plan, and its course over its boots to scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from nodeagent.cli._io import printable
from nodeagent.cli._plan_view import POLICY, detail_text
from nodeagent.cli._render import (
    BAD,
    DIM,
    OUTCOMES,
    STRONG,
    WARN,
    ago,
    change_name,
    clock,
    counted,
    duration,
    local_times,
    paint,
)
from nodeagent.core.plan.change import ActionType, Detail
from nodeagent.core.update.trail import Span, Trail, elapsed, gap_before, trail_from_dict
from nodeagent.reasons import hint

RESULTS: Final = {"failed": BAD, "skipped": DIM}

# Columns of the time line.
SCALE: Final = 24
# Changes of a plan that are shown.
SHOWN: Final = 20


def update_lines(update: dict[str, Any], now: datetime) -> list[str]:
    """``update`` is a ``nodeagent/update/v1`` object."""
    rows = list(_facts(update, now))
    width = max(len(label) for label, _ in rows)
    trail = trail_from_dict(update["trail"])
    lines = [f"{label.ljust(width)}  {local_times(text, now)}" for label, text in rows]
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
    # Entries of older daemons lack this key and others that are read with a default.
    if update.get("successor"):
        yield "instead", printable(update["successor"])
    yield "planned", update["disruption"] + _actions(update["plan"])
    for change in update["plan"].get("changes", ())[:SHOWN]:
        actions = ", ".join(change["actions"]) or "None"
        name = change_name(f"{change['domain']}:{change['key']}")
        policy = POLICY.get(change["policy"], change["policy"])
        yield "change", printable(f"{change['change']} {name} ({policy}): {actions}")
        for detail in change.get("details", ()):
            yield "", f"  {detail_text(_detail(detail))}"
    if (more := len(update["plan"].get("changes", ())[SHOWN:]) + update["plan"].get("more", 0)) > 0:
        yield "change", f"{more} more (--json has them)"
    if update["plan"].get("os"):
        yield "OS", printable(update["plan"]["os"])
    for name, spans in (update.get("etcd_disk") or {}).items():
        yield "etcd", f"{name.replace('_', ' ')}: " + "; ".join(_etcd(span, found) for span, found in spans.items())


def _detail(found: dict[str, Any]) -> Detail:
    lines = found.get("added"), found.get("removed")
    return Detail(found["what"], found.get("before", ""), found.get("after", ""), *lines)


def _reboots(update: dict[str, Any]) -> str:
    if update["reboot_avoided"]:
        return ", a reboot was avoided"
    notes = ["a fallback"] if update.get("fallback") else []
    if soft := update.get("soft_reboots"):
        notes.append(f"{soft} of them soft" if update["reboots"] > 1 else "a soft one")
    how = f" ({', '.join(notes)})" if notes else ""
    return f", {counted(update['reboots'], 'reboot')}{how}" if update["reboots"] else ""


def _actions(plan: dict[str, Any]) -> str:
    actions = [each for each in plan.get("actions", ()) if each != ActionType.NONE]
    return f": {', '.join(map(printable, actions))}" if actions else ""


def _etcd(span: str, found: dict[str, Any]) -> str:
    p99 = "too few for a p99" if found["p99_ms"] is None else f"p99 {found['p99_ms']:g} ms"
    return f"{span} {p99} ({counted(found['samples'], 'sample')}, {found['slow']} slow)"


def _course(trail: Trail, now: datetime) -> Iterator[str]:
    """The phases, with their steps and waits below them, and the time in which the host was down."""
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
        why = ": ".join(filter(None, (phase.reason, phase.message)))
        head = f"{clock(phase.at, now)}  {_scaled(begin, phase.seconds, total)}  {_length(phase):>8}  "
        yield head + paint(phase.name, STRONG) + (f"  {printable(why)}" if why else "")
        yield from _within(trail, index, now)
    if trail.writes:
        yield f"{counted(trail.writes, 'file')} written, units and passwords included"
    for found in trail.boots:
        for _, seconds in found.clock_steps:
            yield f"the wall clock was set by {seconds:+g} s; the lengths are those of the boot's own clock"
    if fence := trail.fence:
        slow = counted(fence.exceedances, "slow fsync")
        yield f"I/O fence: writes limited for {duration(fence.throttled)} of {duration(fence.seconds)}, {slow} of etcd"
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
        why = ": ".join(filter(None, (span.reason, span.message)))
        what = f"waited: {why}" if waits else f"{span.name}" + (f": {span.result}" if span.result != "done" else "")
        what += f", {why}" if why and not waits else ""
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


def differences(first: dict[str, Any], second: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return what differs between two updates, as (what, in the first, in the second)."""
    facts = [_comparable(update) for update in (first, second)]
    names = dict.fromkeys(name for each in facts for name in each)
    rows = [(name, facts[0].get(name, "-"), facts[1].get(name, "-")) for name in names]
    return [row for row in rows if row[1] != row[2]]


def _comparable(update: dict[str, Any]) -> dict[str, str]:
    trail = trail_from_dict(update["trail"])
    found = {
        "to": update["to_name"],
        "from": update["from_name"] or "-",
        "outcome": update["outcome"],
        "why": ": ".join(filter(None, (update["reason"], update["message"]))) or "-",
        "took": duration(update["seconds"]),
        "planned": update["disruption"],
        "actions": ", ".join(update["plan"].get("actions", ())) or "-",
        "reboots": str(update["reboots"]) + (" (1 avoided)" if update["reboot_avoided"] else ""),
        "files written": str(trail.writes),
    }
    for change in update["plan"].get("changes", ()):
        found[f"{change['domain']}:{change['key']}"] = f"{change['change']}: {', '.join(change['actions']) or 'None'}"
    found |= {f"in {name}": length for name, length in _totals(trail.phases)}
    waited = sum(span.seconds or 0.0 for span in trail.waits)
    return found | ({"waited": duration(waited)} if trail.waits else {})


def _totals(phases: Sequence[Span]) -> Iterator[tuple[str, str]]:
    for name in dict.fromkeys(phase.name for phase in phases):
        yield name, duration(sum(phase.seconds or 0.0 for phase in phases if phase.name == name))
