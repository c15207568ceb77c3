# SPDX-License-Identifier: Apache-2.0
"""The page: one HTML document without a script, and without anything to load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from nodeagent.core.display import other_boots
from nodeagent.features.page.view.drawing import DESK, PHONE, Layout, draw
from nodeagent.features.page.view.marks import fit, length, rect, text
from nodeagent.features.page.view.style import STYLE
from nodeagent.features.page.view.timeline import (
    Bar,
    ComparedPart,
    Comparison,
    MeasuredReboot,
    PartKind,
    Timeline,
    comparison_of,
    timeline_of,
)
from nodeagent.update.history.entry import UPDATE_UNDER_WAY

# The enlarged part is drawn if it is less than this part of the whole.
ENLARGE_BELOW: Final = 0.6

_PILLS: Final = {"done": "good", "done-after-fallback": "middling", "superseded": "middling", "withdrawn": "middling"}
_SENTENCES: Final = {
    "done": "Done in {took}",
    "done-after-fallback": "Done in {took}, after a reboot that was not planned",
    "reverted": "Taken back after {took}: the host runs {before} again",
    "degraded": "Stopped half-way after {took}",
    "superseded": "Ended after {took}, because another config was desired; nothing was written",
    "withdrawn": "Ended after {took}, because it was not desired any more; nothing was written",
    UPDATE_UNDER_WAY: "Under way for {took}",
}
_KEY: Final = (
    ("quiet", "all services run"),
    ("wait", "waiting for others"),
    ("disrupt", "disruption"),
    ("revert", "taking back"),
    ("band", "out of service"),
    ("down", "host down"),
    ("clock", "wall clock set"),
)
# A pattern cannot be styled from outside of the element that uses it, so each drawing refers to this one.
_HATCH: Final = (
    '<svg width="0" height="0" aria-hidden="true"><defs><pattern id="hatch" width="6" height="6" '
    'patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="band" width="6" height="6"/>'
    '<rect width="1.6" height="6" fill="currentColor"/></pattern></defs></svg>'
)


def page(update: Mapping[str, Any], *, host: str, version: str, other: MeasuredReboot | None = None) -> str:
    """Return the page for a ``nodeagent/update/v1`` object. ``other`` is a reboot that was measured before."""
    timeline = timeline_of(update)
    title = f"{update['from_name'] or 'first config'} → {update['to_name']}"
    parts = [_head(update, timeline, title, host)]
    if timeline is None:
        parts.append("<p>The course of this update was not kept: it is too old.</p>")
    else:
        parts += [_pictures(timeline), _enlarged(timeline), _comparison(comparison_of(timeline, other), timeline)]
        parts += [_phases(timeline), _steps(timeline), _waits(timeline)]
    parts += [_plan(plan if isinstance(plan := update.get("plan"), Mapping) else {}), _foot(timeline, version)]
    # All texts are escaped. The policy is the second barrier: no script runs, and nothing is loaded.
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{escape(title)}, {escape(host)}</title><style>{STYLE}</style>"
    )
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><main>\n'
        + "\n".join(parts)
        + "\n</main></body></html>\n"
    )


def _head(update: Mapping[str, Any], timeline: Timeline | None, title: str, host: str) -> str:
    outcome = str(update["outcome"])
    took = length(timeline.total if timeline else float(update["seconds"]))
    # A newer agent may know other outcomes.
    sentence = _SENTENCES.get(outcome, "Ended after {took}").format(
        took=took, before=update["from_name"] or "its own files"
    )
    outage = timeline.outage if timeline else None
    if outage is None:
        sentence += "; nothing was disrupted." if outcome in ("done", "superseded", "withdrawn") else "."
    else:
        what = "the host was out of service" if outage.whole else "units were being restarted"
        sentence += f"; {what} for {length(outage.seconds)}."
    cause = ": ".join(filter(None, (str(update["reason"]), str(update["message"]))))
    day, _, began = str(update["started"]).partition("T")
    end = str(update["finished"]).partition("T")[2]
    facts = [host, f"{day} {began[:8]} to {end[:8]} UTC", f"update {str(update['update_id'])[:8]}"]
    pill = f'<span class="pill {_PILLS.get(outcome, "bad")}">{escape(outcome)}</span>'
    return "\n".join(
        (
            f"<header><h1>{escape(title)}</h1> {pill}",
            f'<p class="sub">{escape(" · ".join(facts))}</p>',
            f'<p class="lead">{escape(sentence)}</p>',
            f"<p>Why: {escape(cause)}</p>" if cause else "",
            _tiles(update, timeline, took),
            "</header>",
        )
    )


def _tiles(update: Mapping[str, Any], timeline: Timeline | None, took: str) -> str:
    outage = timeline.outage if timeline else None
    label = "Out of service" if outage is None or outage.whole else "Units restarted"
    reboots = f"{update['reboots']}" + (" (not planned)" if update["fallback"] else "")
    if soft := update.get("soft_reboots"):
        reboots += f", {soft} soft"
    if other := other_boots(update):
        reboots += f", {other} not requested"
    tiles = [("Took", took), (label, length(outage.seconds) if outage else "never"), ("Reboots", reboots)]
    tiles.append(("Strongest action", str(update["disruption"])))
    points = timeline.fence if timeline else ()
    if delays := [p99 for _, _, p99 in points if p99 is not None]:
        tiles.append(("Highest fsync p99", f"{max(delays):.0f} ms"))
    if caps := [cap for _, cap, _ in points if cap is not None]:
        tiles.append(("Lowest I/O cap", f"{min(caps) / 1_000_000:.1f} MB/s"))
    cells = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in tiles)
    return f'<dl class="tiles">{cells}</dl>'


def _pictures(timeline: Timeline) -> str:
    shown = {bar.kind for bar in timeline.phases} | ({"band"} if timeline.outage else set())
    shown |= ({"down"} if timeline.downs else set()) | ({"clock"} if timeline.clock_steps else set())
    key = "".join(f'<li><span class="k-{kind}"></span>{words}</li>' for kind, words in _KEY if kind in shown)
    # To a screen reader, these words are the picture.
    words = "The whole update, to scale: " + ", ".join(f"{bar.name} {length(bar.seconds)}" for bar in timeline.phases)
    # Without a script, the style sheet shows the drawing that fits the screen.
    drawn = "".join(draw(timeline, layout, words) for layout in (DESK, PHONE))
    return f'<section><h2>The whole update</h2>\n{_HATCH}{drawn}<ul class="key">{key}</ul></section>'


def _enlarged(timeline: Timeline) -> str:
    outage = timeline.outage
    if outage is None or outage.seconds > ENLARGE_BELOW * timeline.total:
        return ""
    # A little of both sides shows what it follows and what follows it.
    margin = max(outage.seconds * 0.06, 0.05)
    part = max(0.0, outage.start - margin), min(timeline.total, outage.end + margin)
    title = "While it was out of service" if outage.whole else "While units were restarted"
    drawn = "".join(draw(timeline, layout, f"{title}, enlarged", part) for layout in (DESK, PHONE))
    return f"<section><h2>{title}, enlarged</h2>\n{drawn}</section>"


def _comparison(comparison: Comparison | None, timeline: Timeline) -> str:
    title = "<h2>Compared with “drain, pull, stage, reboot”</h2>"
    if comparison is None:
        sentence = "No reboot of this host has been measured yet, so there is nothing to compare with."
        # An update that disrupted nothing needs no comparison.
        return f"<section>{title}<p>{sentence}</p></section>" if timeline.outage else ""
    here, there = comparison.out
    if here >= there:
        # Less than the usual way is what the section is about. An update may wait for what the usual way does not have.
        return ""
    least, unmeasured = "", ""
    if comparison.missing:
        least, unmeasured = "at least ", f": {' and '.join(comparison.missing)} was not measured here"
    what = "Out of service for" if timeline.outage is None or timeline.outage.whole else "Units were restarted within"
    words = f"{what} {length(here)}, instead of {least}{length(there)} out of service{unmeasured}."
    drawn = "".join(_bars(comparison, layout, words) for layout in (DESK, PHONE))
    rows = [(part.name, length(part.seconds), part.source) for part in comparison.usual]
    note = (
        "The usual way drains the node first, pulls and stages on the empty node, and reboots it for each change. "
        "Its parts below were all measured on this host."
    )
    return (
        f"<section>{title}<p>{escape(words)} {note}</p>\n{drawn}{_table(('Part', 'Takes', 'Measured'), rows)}</section>"
    )


def _bars(comparison: Comparison, layout: Layout, words: str) -> str:
    # One scale for both bars, or they could not be compared.
    whole = max(sum(part.seconds for part in parts) for parts in (comparison.this, comparison.usual)) or 1.0
    left, right, y, marks = 4.0, layout.width - 4, 4.0, []
    for name, parts in (("This update", comparison.this), ("Drain, pull, stage, reboot", comparison.usual)):
        total = sum(part.seconds for part in parts if part.out)
        marks.append(text(left, y + 12, f"{name}: out of service {length(total)}", "lane"))
        x = left
        for part in parts:
            width = (right - left) * part.seconds / whole
            marks.append(_bar(part, x, y + 18, width))
            x += width
        y += 54
    shape = f'viewBox="0 0 {layout.width:.0f} {y:.0f}" width="{layout.width:.0f}" height="{y:.0f}"'
    return f'<svg class="{layout.name}" role="img" aria-label="{escape(words)}" {shape}>{"".join(marks)}</svg>'


def _bar(part: ComparedPart, x: float, y: float, width: float) -> str:
    kind = "disrupt" if part.out else "quiet"
    words = fit(f"{part.name} {length(part.seconds)}", width - 8, 12) or fit(part.name, width - 8, 12)
    bar = rect(x, y, width, 24, f"bar {kind}", f"{part.name}, {length(part.seconds)}")
    return bar + (text(x + width / 2, y + 16.5, words, f"in {kind}", "middle") if words else "")


def _phases(timeline: Timeline) -> str:
    rows = [(bar.name, _clock(bar), length(bar.seconds), bar.text) for bar in timeline.phases]
    return f"<section><h2>Phases</h2>{_table(('Phase', 'From (UTC)', 'Took', 'Why'), rows)}</section>"


def _steps(timeline: Timeline) -> str:
    rows = []
    for bar in timeline.steps:
        result = str(bar.kind) if bar.kind in (PartKind.FAILED, PartKind.SKIPPED) else "done"
        rows.append((bar.name, _clock(bar), length(bar.seconds), ": ".join(filter(None, (result, bar.text)))))
    return f"<section><h2>Steps</h2>{_table(('Step', 'From (UTC)', 'Took', 'Result'), rows)}</section>" if rows else ""


def _waits(timeline: Timeline) -> str:
    rows = [(bar.name, _clock(bar), length(bar.seconds)) for bar in timeline.waits]
    return f"<section><h2>Waits</h2>{_table(('For', 'From (UTC)', 'Took'), rows)}</section>" if rows else ""


def _plan(plan: Mapping[str, Any]) -> str:
    # The history is kept for years, and a damaged plan must not hide the rest of the update.
    changes = plan.get("changes")
    rows = [
        (f"{change.get('domain', '')} {change.get('key', '')}", str(change.get("change", "")), _actions(change))
        for change in (changes if isinstance(changes, list) else ())
        if isinstance(change, Mapping)
    ]
    if not rows:
        return ""
    more = f"<p>and {escape(str(plan['more']))} more changes</p>" if plan.get("more") else ""
    return f"<section><h2>Plan</h2>{_table(('What', 'Change', 'Actions'), rows)}{more}</section>"


def _actions(change: Mapping[str, Any]) -> str:
    actions = change.get("actions")
    return ", ".join(str(action) for action in actions) if isinstance(actions, list) else ""


def _clock(bar: Bar) -> str:
    return bar.at.partition("T")[2].removesuffix("Z")


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    classes = {"Took": "n", "Takes": "n", "From (UTC)": "at", "Change": "n"}
    kinds = [classes.get(head, "long") for head in heads]
    # A screen reader names row and column of a cell by these scopes.
    top = "".join(f'<th scope="col" class="{kind}">{head}</th>' for head, kind in zip(heads, kinds, strict=True))
    body = []
    for first, *rest in rows:
        cells = "".join(f'<td class="{kind}">{escape(cell)}</td>' for cell, kind in zip(rest, kinds[1:], strict=True))
        body.append(f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>')
    return f"<table><thead><tr>{top}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _foot(timeline: Timeline | None, version: str) -> str:
    notes = [f"nodeagent {escape(version)}"]
    if timeline is not None:
        notes.append("lengths are by the clock of each boot, times of day by the wall clock of the host")
        for _, seconds in timeline.clock_steps:
            notes.append(f"the wall clock was set by {seconds:+.1f} s during the update")
        if any(down.seconds is None for down in timeline.downs):
            notes.append("the wall clock went back over a reboot, so its length is not known and is drawn as nothing")
        if timeline.omitted:
            notes.append(f"{timeline.omitted} items were left out")
        notes.append("bars thinner than two pixels are drawn with two")
    return f"<footer>{' · '.join(notes)}</footer>"
