"""Suggest the entries of the recommended policy that would avoid the reboot or the drain of a plan.

Only entries of that list are suggested: an entry that is too weak leaves services running with their old configuration.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nodeagent.core.plan.change import Action, ActionType, Change, PolicySource
from nodeagent.core.plan.policy import USER_DOMAINS, Entry, Policy, match

__all__ = ["Disruptive", "Suggestion", "entry_to_dict", "suggest"]

DISRUPTIVE = (ActionType.DRAIN, ActionType.REBOOT)


@dataclass(frozen=True, slots=True)
class Disruptive:
    """A change of a plan that requests a drain or a reboot, and the source of that decision."""

    change: Change
    source: PolicySource


@dataclass(frozen=True, slots=True)
class Suggestion:
    """``entry`` would avoid the drain and the reboot of ``change``. Without one, ``why`` is the reason."""

    change: Change
    entry: Entry | None
    why: str = ""


def suggest(changes: Iterable[Disruptive], recommended: Policy) -> tuple[Suggestion, ...]:
    """Return a suggestion for each change."""
    return tuple(_suggestion(each, recommended) for each in changes)


def _suggestion(found: Disruptive, recommended: Policy) -> Suggestion:
    change = found.change
    if change.domain not in ("file", "unit", *USER_DOMAINS):
        return Suggestion(change, None, "it belongs to the OS deployment, for which a policy cannot have an entry")
    if found.source is PolicySource.USER:
        return Suggestion(change, None, "an entry of your policy requests it")
    if found.source is PolicySource.DEFAULT:
        return Suggestion(change, None, "the built-in policy requests it")
    entry = match(recommended, change)
    if entry is None:
        return Suggestion(change, None, "the recommended policy has no entry for it: its readers are unknown")
    return Suggestion(change, entry.entry)


def entry_to_dict(entry: Entry) -> dict[str, Any]:
    """Return an entry of files in the form of ``nodeDisruptionPolicy``."""
    return {"path": entry.key, "actions": [_action_to_dict(action) for action in entry.actions]}


def _action_to_dict(action: Action) -> dict[str, Any]:
    kind = str(action.type)
    return {"type": kind, kind.lower(): {"serviceName": action.unit}} if action.unit else {"type": kind}
