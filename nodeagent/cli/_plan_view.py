"""A plan for people: what changes, what is done for it and why, and how much anybody will notice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from nodeagent.cli._output import printable
from nodeagent.cli._terminal import BAD, DIM, GOOD, STRONG, WARN, paint, table
from nodeagent.core.plan.change import Action, ActionType, Plan, PlannedChange
from nodeagent.core.plan.plan import disruption
from nodeagent.errors import Problem

__all__ = ["action_text", "actions_text", "show"]

MAX_BECAUSE: Final = 3  # changes named behind one action; all of them are in the list above it
STYLE: Final = {"none": GOOD, "reload": GOOD, "restart": WARN, "drain": WARN, "reboot": BAD}
POLICY: Final = {"default": "built in", "user": "user", "none": "unlisted"}
SENTENCE: Final = {
    "none": "nothing is restarted",
    "reload": "services re-read their configuration, none stops",
    "restart": "services restart, workloads stay",
    "drain": "workloads move away first, no reboot",
    "reboot": "workloads move away first, then the host reboots",
}


def action_text(action: Action) -> str:
    return f"{action.type} {action.unit}" if action.unit else str(action.type)


def actions_text(actions: Iterable[Action]) -> str:
    return ", ".join(map(action_text, actions)) or str(ActionType.NONE)


def show(plan: Plan, warnings: Iterable[Problem] = ()) -> None:
    print(paint(printable(f"{plan.from_name} -> {plan.to_name}"), STRONG))
    if not plan.changes:
        print("nothing to do: both configs mean the same")
        return
    print()
    table(("change", "what", "policy", "asks for"), [_row(planned) for planned in plan.changes])
    print()
    for number, action in enumerate(plan.actions, 1):
        print(f"{number}. {action_text(action).ljust(_width(plan))}  {paint(_because(action), DIM)}")
    word = disruption(plan)
    print(f"\ndisruption: {paint(word, STYLE[word])} ({SENTENCE[word]})")
    for found in warnings:
        print(printable(f"warning: {found.path} {found.message}"))


def _row(planned: PlannedChange) -> tuple[str, str, str, str]:
    asks = actions_text(planned.actions)
    if planned.why:
        asks += f" ({planned.why})"
    return str(planned.change.kind), printable(_name(planned.change.id)), POLICY[planned.policy], printable(asks)


def _name(change: str) -> str:
    """``file:/etc/x``, and ``fips`` instead of ``fips:fips``."""
    domain, _, key = change.partition(":")
    return domain if domain == key else change


def _width(plan: Plan) -> int:
    return max(len(action_text(action)) for action in plan.actions)


def _because(action: Action) -> str:
    named = ", ".join(map(_name, action.because[:MAX_BECAUSE]))
    more = len(action.because) - MAX_BECAUSE
    return printable(f"for {named}" + (f" and {more} more" if more > 0 else ""))
