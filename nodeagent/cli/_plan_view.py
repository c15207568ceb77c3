# SPDX-License-Identifier: Apache-2.0
"""The lines of a plan: its changes, the keys of documents, the actions, and the parts that need no disruption."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from nodeagent.cli._io import printable
from nodeagent.cli._plan_inputs import recommended_policy
from nodeagent.cli._render import BAD, DIM, GOOD, STRONG, WARN, change_name, paint, table
from nodeagent.core.enumerated import enumerated
from nodeagent.core.plan.change import (
    Action,
    ActionType,
    Change,
    ChangeKind,
    Detail,
    KeyChange,
    Plan,
    PlannedChange,
    PolicySource,
)
from nodeagent.core.plan.plan import disruption
from nodeagent.core.plan.policy_explain import suggest
from nodeagent.core.plan.removal import Removal
from nodeagent.report.plan_groups import ChangeRow, plan_rows, shared_details

# The list of changes names all of them.
MAX_BECAUSE: Final = 3
# Keys of a plan that is grouped.
MAX_KEYS: Final = 20
UNSET: Final = "-"
STYLE: Final = {"none": GOOD, "reload": GOOD, "restart": WARN, "drain": WARN, "reboot": BAD}
POLICY: Final = {"default": "built in", "recommended": "recommended", "user": "user", "none": "unlisted"}
# Values of a list, which are added or removed one by one.
LISTED: Final = ("argument", "extension", "key")
# Twelve digits identify an image, and two of them fit on a line.
DIGEST: Final = re.compile(r"\b(sha(?:256|512)[:-][0-9a-f]{12})[0-9a-f]{52,116}\b")
DIFF: Final = {"+": GOOD, "-": BAD, "@": DIM}
DISRUPTIVE: Final = (ActionType.DRAIN, ActionType.REBOOT)
SENTENCE: Final = {
    "none": "nothing is restarted",
    "reload": "services re-read their configuration, none stops",
    "restart": "services restart, workloads stay",
    "drain": "workloads move away first, no reboot",
    "reboot": "workloads move away first, then the host reboots",
}


# Without a cluster, a drain moves nothing.
ALONE: Final = {
    "none": "nothing is interrupted: this host is in no cluster",
    "reload": "services re-read their configuration, none stops: this host is in no cluster",
    "restart": "services restart: this host is in no cluster",
    "reboot": "the host reboots",
}
FALLBACK: Final = "if an action fails: a reboot, and a revert if that does not help"


@dataclass(frozen=True, slots=True)
class View:
    """How much of a plan is shown. ``summary``: no single change. ``all``: each change, also of a long list.

    ``alone``: the host is in no cluster, so that no plan drains it.
    """

    summary: bool = False
    all: bool = False
    alone: bool = False

    def without_drain(self, actions: Iterable[Action]) -> tuple[Action, ...]:
        return tuple(action for action in actions if not (self.alone and action.type is ActionType.DRAIN))

    def effect(self, plan: Plan) -> str:
        """Return the word of what a plan does to the services of this host."""
        return disruption(replace(plan, actions=self.without_drain(plan.actions)))


WHOLE: Final = View()


def actions_text(actions: Iterable[Action]) -> str:
    return ", ".join(map(_action_text, actions)) or str(ActionType.NONE)


def _action_text(action: Action) -> str:
    return f"{action.type} {action.unit}" if action.unit else str(action.type)


def show_plan(
    plan: Plan,
    notes: Iterable[str],
    diffs: Mapping[str, str],
    nothing: str = "nothing to do: both configs mean the same",
    view: View = WHOLE,
) -> None:
    """Print a plan; its summary comes last. ``diffs`` has texts by the id of a change, ``notes`` are lines before the
    summary, ``nothing`` is the line of a plan without changes."""
    print(paint(printable(f"{plan.from_name or 'no config'} -> {plan.to_name}"), STRONG))
    if not plan.changes:
        print(nothing)
        for note in notes:
            print(printable(note))
        return
    print()
    if not view.summary:
        _show_changes(plan, view)
        for text in diffs.values():
            print_diff(text)
            print()
    acts = [action for action in view.without_drain(plan.actions) if action.type is not ActionType.NONE]
    width = max((len(_action_text(action)) for action in acts), default=0)
    for number, action in enumerate(acts, 1):
        because = printable(f"for {enumerated(map(change_name, action.because), MAX_BECAUSE)}")
        print(f"{number}. {_action_text(action).ljust(width)}  {paint(because, DIM)}")
    if acts:
        print()
    for note in notes:
        print(printable(note))
    _show_avoidable(plan, view)
    print(_counts(plan))
    word = disruption(plan)
    sentence = ALONE[view.effect(plan)] if view.alone and plan.drain else SENTENCE[word]
    print(f"disruption: {paint(word, STYLE[word])} ({sentence})")


def print_diff(text: str) -> None:
    for line in text.splitlines():
        print(paint(printable(line), DIFF.get(line[:1], "")))


def _show_changes(plan: Plan, view: View) -> None:
    """Print the tables of changes and of keys."""
    rows = [ChangeRow(each.change.id, (each,)) for each in plan.changes] if view.all else plan_rows(plan)
    below = [[*details_text([planned.details for planned in row.items])] for row in rows]
    table(("change", "what", "policy", "actions"), [_row(row, view) for row in rows], below=below)
    print()
    keys = [(key, plan) for planned in plan.changes for key in planned.keys]
    if not keys:
        return
    most = MAX_KEYS if len(rows) < len(plan.changes) else len(keys)
    table(("key", "before", "after", "actions"), [_key_row(key, plan, view) for key, plan in keys[:most]])
    if len(keys) > most:
        print(f"and {len(keys) - most} more keys; --all shows them")
    print()


def details_text(details_of_changes: Sequence[Sequence[Detail]]) -> Iterator[str]:
    """Yield how the changes of a row differ; ``details_of_changes`` has the details of each of them."""
    if len(details_of_changes) == 1:
        yield from map(detail_text, details_of_changes[0])
        return
    for detail, count in shared_details(details_of_changes):
        yield detail_text(detail) + (f" ({count} of them)" if count < len(details_of_changes) else "")


def _counts(plan: Plan) -> str:
    added, changed, removed = (plan.count(kind) for kind in ChangeKind)
    text = f"entries: {added} added, {changed} changed, {removed} removed of {plan.total}"
    return paint(text, BAD if Removal(removed, plan.total).needs_confirmation else "")


def _show_avoidable(plan: Plan, view: View) -> None:
    """Print how to avoid the drain and the reboot, unless an entry of the policy or the OS needs them anyway."""
    disruptive = [
        planned
        for planned in plan.changes
        if any(action.type in DISRUPTIVE for action in view.without_drain(planned.actions))
    ]
    listed = [planned for planned in disruptive if planned.policy is not PolicySource.NONE]
    if disruptive and not listed and all(planned.change.domain in ("file", "unit") for planned in disruptive):
        _show_recommendation([planned.change for planned in disruptive], view)


def _show_recommendation(changes: Iterable[Change], view: View) -> None:
    """Print whether the recommended policy avoids the disruption by unlisted changes, or the first that it does not."""
    recommended = recommended_policy()
    suggestions = [suggest(change, PolicySource.NONE, recommended) for change in changes]
    left = [printable(suggestion.change.key) for suggestion in suggestions if suggestion.entry is None]
    if not left:
        nothing = "no reboot" if view.alone else "no drain and no reboot"
        print(f"avoidable: the recommended policy needs {nothing} for it; see nodeagent policy suggest")
        return
    alone = "this change, so it reboots" if view.alone else "this change, so it drains and reboots"
    several = f"{len(left)} changes, so they {'reboot' if view.alone else 'drain and reboot'}"
    covered = alone if len(left) == 1 else several
    print(f"unlisted: no policy entry covers {covered}; see nodeagent explain {left[0]}")


def detail_text(detail: Detail) -> str:
    """Return ``mode 0644 -> 0600``, ``content +3 -1`` or ``+audit=1``; digests are cut."""
    if detail.added is not None or detail.removed is not None:
        return printable(f"{detail.what} +{detail.added or 0} -{detail.removed or 0}")
    if detail.what in LISTED:
        return printable(f"+{detail.after}" if detail.after else f"-{detail.before}")
    value = f"{detail.before} -> {detail.after}" if detail.before and detail.after else detail.after
    if detail.before and not detail.after:
        value = f"{detail.before} -> none"
    value = DIGEST.sub(r"\1...", value)
    return printable(f"{detail.what} {value}" if value else f"{detail.what} differs")


def _row(row: ChangeRow[PlannedChange], view: View) -> tuple[str, str, str, str]:
    planned = row.first
    actions = actions_text(view.without_drain(planned.actions)) + (f" ({planned.why})" if planned.why else "")
    return (
        str(planned.change.kind),
        printable(change_name(row.what)),
        POLICY[planned.policy],
        printable(actions),
    )


def _key_row(key: KeyChange, plan: Plan, view: View) -> tuple[str, str, str, str]:
    actions = actions_text(view.without_drain(key.actions)) + (f" ({key.why})" if key.why else "")
    restarted = (action.unit for action in plan.actions if action.type == ActionType.RESTART)
    # Nothing of this plan starts the program, so the key waits for another start.
    if key.next_start and not plan.reboot and key.next_start not in restarted:
        actions += f", from the next start of {key.next_start}"
    before, after = printable(key.before or UNSET), printable(key.after or UNSET)
    return printable(f"{key.document}: {key.key}"), before, after, printable(actions)
