# SPDX-License-Identifier: Apache-2.0
"""The lines of a plan: its changes, the keys of documents, the actions, and the parts that need no disruption."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from nodeagent.cli._features import lines_after
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
from nodeagent.features import plan_parts

# The list of changes names all of them.
MAX_BECAUSE: Final = 3
UNSET: Final = "-"
STYLE: Final = {"none": GOOD, "reload": GOOD, "restart": WARN, "drain": WARN, "reboot": BAD}
POLICY: Final = {"default": "built in", "user": "user", "none": "unlisted"}
# Values of a list, which are added or removed one by one.
LISTED: Final = ("argument", "extension", "key")
# Twelve digits identify an image, and two of them fit on a line.
DIGEST: Final = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}")
DIFF: Final = {"+": GOOD, "-": BAD, "@": DIM}
DISRUPTIVE: Final = (ActionType.DRAIN, ActionType.REBOOT)
SENTENCE: Final = {
    "none": "nothing is restarted",
    "reload": "services re-read their configuration, none stops",
    "restart": "services restart, workloads stay",
    "drain": "workloads move away first, no reboot",
    "reboot": "workloads move away first, then the host reboots",
}


def actions_text(actions: Iterable[Action]) -> str:
    return ", ".join(map(_action_text, actions)) or str(ActionType.NONE)


def _action_text(action: Action) -> str:
    return f"{action.type} {action.unit}" if action.unit else str(action.type)


def show_plan(
    plan: Plan,
    notes: Iterable[str],
    diffs: Mapping[str, str],
    nothing: str = "nothing to do: both configs mean the same",
) -> None:
    """Print a plan. ``diffs`` has texts by the id of a change, ``nothing`` is the line of a plan without changes."""
    print(paint(printable(f"{plan.from_name or 'no config'} -> {plan.to_name}"), STRONG))
    if not plan.changes:
        print(nothing)
        return
    print()
    below = [[detail_text(detail) for detail in planned.details] for planned in plan.changes]
    table(("change", "what", "policy", "actions"), [_row(planned) for planned in plan.changes], below=below)
    print()
    keys = [key for planned in plan.changes for key in planned.keys]
    if keys:
        table(("key", "before", "after", "actions"), [_key_row(key, plan) for key in keys])
        print()
    for text in diffs.values():
        for line in text.splitlines():
            print(paint(printable(line), DIFF.get(line[:1], "")))
        print()
    acts = [action for action in plan.actions if action.type is not ActionType.NONE]
    width = max((len(_action_text(action)) for action in acts), default=0)
    for number, action in enumerate(acts, 1):
        because = printable(f"for {enumerated(map(change_name, action.because), MAX_BECAUSE)}")
        print(f"{number}. {_action_text(action).ljust(width)}  {paint(because, DIM)}")
    if acts:
        print()
    word = disruption(plan)
    print(f"disruption: {paint(word, STYLE[word])} ({SENTENCE[word]})")
    _show_avoidable(plan)
    for line in lines_after("disruption", plan_parts(plan)):
        print(line)
    for note in notes:
        print(printable(note))
    print(_counts(plan))


def _counts(plan: Plan) -> str:
    added, changed, removed = (plan.count(kind) for kind in ChangeKind)
    text = f"entries: {added} added, {changed} changed, {removed} removed of {plan.total}"
    return paint(text, BAD if Removal(removed, plan.total).needs_confirmation else "")


def _show_avoidable(plan: Plan) -> None:
    """Print how to avoid the drain and the reboot, unless an entry of the policy or the OS needs them anyway."""
    disruptive = [planned for planned in plan.changes if any(action.type in DISRUPTIVE for action in planned.actions)]
    listed = [planned for planned in disruptive if planned.policy is not PolicySource.NONE]
    if disruptive and not listed and all(planned.change.domain in ("file", "unit") for planned in disruptive):
        _show_recommendation([planned.change for planned in disruptive])


def _show_recommendation(changes: Iterable[Change]) -> None:
    """Print whether the recommended policy avoids the disruption by unlisted changes, or the first that it does not."""
    recommended = recommended_policy()
    suggestions = [suggest(change, PolicySource.NONE, recommended) for change in changes]
    left = [printable(suggestion.change.key) for suggestion in suggestions if suggestion.entry is None]
    if not left:
        print("avoidable: the recommended policy needs no drain and no reboot for it; see nodeagent policy suggest")
        return
    several = f"{len(left)} changes, so they drain and reboot"
    covered = "this change, so it drains and reboots" if len(left) == 1 else several
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


def _row(planned: PlannedChange) -> tuple[str, str, str, str]:
    actions = actions_text(planned.actions) + (f" ({planned.why})" if planned.why else "")
    return (
        str(planned.change.kind),
        printable(change_name(planned.change.id)),
        POLICY[planned.policy],
        printable(actions),
    )


def _key_row(key: KeyChange, plan: Plan) -> tuple[str, str, str, str]:
    actions = actions_text(key.actions) + (f" ({key.why})" if key.why else "")
    restarted = (action.unit for action in plan.actions if action.type == ActionType.RESTART)
    # Nothing of this plan starts the program, so the key waits for another start.
    if key.next_start and not plan.reboot and key.next_start not in restarted:
        actions += f", from the next start of {key.next_start}"
    before, after = printable(key.before or UNSET), printable(key.after or UNSET)
    return printable(f"{key.document}: {key.key}"), before, after, printable(actions)
