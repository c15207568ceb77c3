# SPDX-License-Identifier: Apache-2.0
"""Explain the decision of the policy about one path, unit or field, suggest entries that would disrupt less, and name
the extensions that a policy uses.

Only entries of the recommended policy are suggested: an entry that is too weak leaves services running with their old
configuration.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from nodeagent.core.config.paths import managed_path_problem
from nodeagent.core.plan.change import CHOSEN, Action, ActionType, Change, ChangeKind, PolicySource
from nodeagent.core.plan.path_pattern import matches, specificity
from nodeagent.core.plan.plan import combine, widen
from nodeagent.core.plan.policy import (
    OWN_NAME,
    SSHKEY,
    UNLISTED,
    USER_DOMAINS,
    Entry,
    MatchKind,
    Policy,
    PolicyMatch,
    match,
    unit_patterns,
)
from nodeagent.core.plan.sides import Sides
from nodeagent.errors import Problem

WHOSE: Final = {
    PolicySource.DEFAULT: "the built-in",
    PolicySource.RECOMMENDED: "the recommended",
    PolicySource.USER: "the user's",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """An explanation. ``match`` is exact, pattern, directory or none.

    ``actions`` are those of a change of this entry alone, in order; None if they depend on the content. ``replaced`` is
    the built-in entry that the entry of the user replaces, ``shadowed`` are weaker patterns and directories.
    ``reason`` is a summary in a sentence.
    """

    domain: str
    key: str
    source: PolicySource
    entry: Entry | None
    match: str
    actions: tuple[Action, ...] | None
    replaced: Entry | None
    shadowed: tuple[Entry, ...]
    reason: str


def explain(policy: Policy, domain: str, key: str) -> Explanation:
    # No policy allows what a running host cannot do.
    if reason := _never(domain, key):
        return Explanation(domain, key, PolicySource.NONE, None, "none", (), None, (), reason)
    matched = match(policy, Change(domain, key, ChangeKind.MODIFIED))
    if matched is None:
        reason = f"{_unlisted(domain)}; unlisted changes drain and reboot"
        return Explanation(domain, key, PolicySource.NONE, None, "none", UNLISTED, None, (), reason)
    entry = matched.entry
    # An admin who sees an unexpected entry wants to know what it took the place of.
    replaced = next((e for e in policy.replaced if e.key == entry.key and entry.source in CHOSEN), None)
    shadowed: tuple[Entry, ...] = ()
    if domain == "file":
        shadowed = _shadowed(policy, key, entry)
    elif domain == "unit":
        shadowed = tuple(pattern for pattern in unit_patterns(policy, key) if pattern is not entry)
    return Explanation(
        domain,
        key,
        entry.source,
        entry,
        str(matched.kind),
        None if entry.rule else _alone(entry, key),
        replaced,
        shadowed,
        _reason(matched, replaced, shadowed),
    )


def _never(domain: str, key: str) -> str:
    """Return why a running host refuses a change regardless of the policy, "" if it does not."""
    if domain == "fips":
        return "it cannot be changed on a running host: FIPS mode is set when the host is installed"
    problem = managed_path_problem(key) if domain == "file" else None
    return f"it cannot be changed on a running host: the path {problem}" if problem else ""


def _alone(entry: Entry, key: str) -> tuple[Action, ...]:
    """Return the combined actions of a change of ``key``, without ``because``."""
    # As a plan would have them: a reboot brings its drain, and a restart takes the place of a reload.
    return tuple(replace(action, because=()) for action in combine([("", widen(_decided(entry, key)))]))


def _decided(entry: Entry, key: str) -> tuple[Action, ...]:
    # A change alone needs no sides, because the entry has no rule.
    return entry.decide(Change("", key, ChangeKind.MODIFIED), Sides()).actions


def _shadowed(policy: Policy, path: str, entry: Entry) -> tuple[Entry, ...]:
    """Return the entries that match ``path`` as well and lose: patterns, then directories, the strongest first."""
    patterns = [pattern for pattern in policy.patterns.values() if pattern is not entry and matches(pattern.key, path)]
    # Of equally specific patterns the last one is the strongest.
    patterns = sorted(patterns, key=lambda pattern: specificity(pattern.key))[::-1]
    others = [other for other in policy.files.values() if other is not entry and path.startswith(f"{other.key}/")]
    return (*patterns, *sorted(others, key=lambda other: -len(other.key)))


def _unlisted(domain: str) -> str:
    match domain:
        case "file":
            return "no entry for this path or a directory above it, and no pattern that matches it"
        case "unit":
            return "no entry for this unit, and no pattern that matches it"
        case _:
            return "it belongs to the OS deployment, for which a policy cannot have an entry"


def _reason(matched: PolicyMatch, replaced: Entry | None, shadowed: tuple[Entry, ...]) -> str:
    entry = matched.entry
    text = f"{WHOSE[entry.source]} entry for {entry.key}"
    if matched.kind is MatchKind.DIRECTORY:
        text += ", the longest directory above it" if shadowed else ", a directory above it"
    elif matched.kind is MatchKind.PATTERN:
        text += ", the most specific pattern that matches it" if shadowed else ", a pattern that matches it"
    elif shadowed:
        text += ", which is closer than any pattern or directory" if entry.key.startswith("/") else ", its exact name"
    if replaced is not None:
        text += "; it replaces the built-in entry of the same key"
    return text


@dataclass(frozen=True, slots=True)
class Suggestion:
    """``entry`` would avoid the drain and the reboot of ``change``. Without one, ``why`` is the reason."""

    change: Change
    entry: Entry | None
    why: str = ""


def suggest(change: Change, source: PolicySource, recommended: Policy) -> Suggestion:
    """Return a suggestion for a change that requests a drain or a reboot. ``source`` is that of this decision."""
    if change.domain not in ("file", "unit", *USER_DOMAINS):
        return Suggestion(change, None, "it belongs to the OS deployment, for which a policy cannot have an entry")
    # The recommended policy is consulted for unlisted changes only: a drain or a reboot that an entry requests was
    # chosen.
    if source is PolicySource.USER:
        return Suggestion(change, None, "an entry of your policy requests it")
    if source is PolicySource.RECOMMENDED:
        return Suggestion(change, None, "the recommended policy requests it")
    if source is PolicySource.DEFAULT:
        return Suggestion(change, None, "the built-in policy requests it")
    entry = match(recommended, change)
    if entry is None:
        return Suggestion(change, None, "the recommended policy has no entry for it: its readers are unknown")
    if entry.entry.rule:
        # A drop-in has no rules.
        text = "the recommended policy decides by the content: nodeagent plan shows how, with recommended_policy: true"
        return Suggestion(change, None, text)
    return Suggestion(change, entry.entry)


# Those that a policy can request.
IN_A_POLICY: Final = frozenset(
    {
        ActionType.NONE,
        ActionType.DRAIN,
        ActionType.DAEMON_RELOAD,
        ActionType.RELOAD,
        ActionType.RESTART,
        ActionType.REBOOT,
    }
)
# In place of the service that reads a file, which only the admin knows.
SERVICE: Final = "NAME.service"


def as_policy(domain: str, key: str, actions: tuple[Action, ...]) -> dict[str, Any] | None:
    """Return a policy with one entry, of a file, a unit or the keys of users; None if no policy can have it."""
    if any(action.type not in IN_A_POLICY for action in actions):
        return None
    listed = [_action_to_dict(action) for action in actions]
    match domain:
        case "file":
            return {"files": [{"path": key, "actions": listed}]}
        case "unit":
            return {"units": [{"name": key, "actions": listed}]}
        case _ if domain in USER_DOMAINS:
            return {SSHKEY: {"actions": listed}}
        case _:
            return None


def entry_to_dict(entry: Entry) -> dict[str, Any]:
    """Return an entry of files in the form of ``nodeDisruptionPolicy``."""
    return {"path": entry.key, "actions": [_action_to_dict(action) for action in entry.actions]}


def _action_to_dict(action: Action) -> dict[str, Any]:
    kind = str(action.type)
    return {"type": kind, kind.lower(): {"serviceName": action.unit}} if action.unit else {"type": kind}


def without_actions(policy: Policy) -> Iterator[Problem]:
    """Yield a note for each entry with an empty list, which takes no action, as None does."""
    entries = (*policy.files.values(), *policy.patterns.values(), *policy.units.values())
    for entry in entries:
        if not entry.actions and not entry.rule:
            note = "has no actions, so nothing is reloaded or restarted, and no warning is given; None says the same"
            yield Problem(entry.key, note)


def extensions(policy: Policy) -> Iterator[Problem]:
    """Yield what the API server of a cluster does not accept in a policy, or takes in another way, by the key of the
    entry."""
    for key in policy.patterns:
        yield Problem(key, "a cluster takes the * literally")
    for key in policy.units:
        if signs := [sign for sign in "@*" if sign in key]:
            yield Problem(key, f"an API server refuses {' and '.join(signs)} in the name of a unit")
    for entry in (*policy.files.values(), *policy.patterns.values(), *policy.units.values()):
        yield from _of_actions(entry)
    if policy.sshkey is not None:
        yield from _of_actions(policy.sshkey)


def _of_actions(entry: Entry) -> Iterator[Problem]:
    # Each unit once: a pattern often has a daemon-reload and a restart.
    for unit in dict.fromkeys(action.unit for action in entry.actions):
        if unit == OWN_NAME or "@" in unit:
            yield Problem(entry.key, f"an API server refuses the serviceName {unit}")
