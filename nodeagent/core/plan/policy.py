# SPDX-License-Identifier: Apache-2.0
"""The node disruption policy: the actions that a change to a path, a unit or the users of a host requests.

A policy is a lookup table. A path matches its own entry, else the most specific pattern (``path_pattern``), else the
longest directory above it; a unit matches its own entry, else the most specific pattern of names (``unit_pattern``);
all changes to users match the single ``sshkey`` entry. A change without a matching entry is unlisted, and the caller
assumes the strongest actions. Each entry has its source, so that an admin sees whether it is built in.

The rules are those of ``spec.nodeDisruptionPolicy`` of operator.openshift.io/v1 MachineConfiguration; ``policy_parse``
reads one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import reduce
from typing import Final

from nodeagent.core.config.unit_names import is_template
from nodeagent.core.plan import unit_pattern
from nodeagent.core.plan.change import CHOSEN, Action, ActionType, Change, KeyChange, PolicySource
from nodeagent.core.plan.path_pattern import matches, specificity
from nodeagent.core.plan.sides import Sides

NONE = Action(ActionType.NONE)
DRAIN = Action(ActionType.DRAIN)
DAEMON_RELOAD = Action(ActionType.DAEMON_RELOAD)
REBOOT = Action(ActionType.REBOOT)

# The actions of an unlisted change. Its readers are unknown, so all services start again.
UNLISTED = (DRAIN, REBOOT)

# The entries that the setting recommended_policy adds, below those of the admin. It comes with the package.
RECOMMENDED: Final = "/usr/lib/nodeagent/policy-recommended.yaml"

# An object that an API server accepts has at most 1.5 MB.
MAX_BYTES: Final = 2 * 1024 * 1024
MAX_DROP_INS: Final = 100

SSHKEY = "sshkey"

# In place of a name in the actions of an entry for units: the unit that changes, as in systemd.unit(5).
OWN_NAME: Final = "%n"

# The ``sshkey`` entry decides about each change to a user, as in the machine-config-operator.
USER_DOMAINS = (SSHKEY, "password", "user")


def reload(unit: str) -> Action:
    return Action(ActionType.RELOAD, unit)


def restart(unit: str) -> Action:
    return Action(ActionType.RESTART, unit)


def start(unit: str) -> Action:
    """Start ``unit``, if a boot would."""
    return Action(ActionType.START, unit)


def stop(unit: str) -> Action:
    return Action(ActionType.STOP, unit)


def clear_state(unit: str, *paths: str) -> Action:
    """Stop ``unit`` and remove files of its state. The restart or the reboot that follows starts it."""
    return Action(ActionType.CLEAR_STATE, unit, paths=tuple(sorted(paths)))


def restart_static_pod(pod: str, path: str) -> Action:
    """Replace the manifest at ``path``. ``pod`` is namespace/name."""
    return Action(ActionType.RESTART_STATIC_POD, pod, paths=(path,))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about a change. ``why`` is a phrase for messages, without content of the file."""

    actions: tuple[Action, ...]
    why: str
    keys: tuple[KeyChange, ...] = ()


# Decides about a change of an entry whose actions depend on the content.
Rule = Callable[[Change, Sides], Verdict]


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry. ``key`` is a path without trailing slash, a pattern of paths, a unit name, a pattern of unit names,
    ``sshkey`` or a field of the MachineConfig.

    If ``rule`` is set, it decides instead of ``actions``, and ``summary`` describes it. ``origin`` is the file of an
    entry of the user.
    """

    key: str
    actions: tuple[Action, ...] = ()
    source: PolicySource = PolicySource.DEFAULT
    rule: Rule | None = None
    summary: str = ""
    # Entries are equal whatever file they come from.
    origin: str = field(default="", compare=False)

    def decide(self, change: Change, sides: Sides) -> Verdict:
        if self.rule:
            return self.rule(change, sides)
        if is_template(change.key) and any(action.unit == OWN_NAME for action in self.actions):
            return Verdict(UNLISTED, f"which instances of {change.key} run is not known")
        return Verdict(actions_for(self.actions, change.key), "")


def actions_for(actions: tuple[Action, ...], unit: str) -> tuple[Action, ...]:
    """Return the actions of an entry for a change of ``unit``."""
    named = (replace(action, unit=unit) if action.unit == OWN_NAME else action for action in actions)
    return tuple(dict.fromkeys(named))


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy. ``fields`` are the other parts of a MachineConfig, which a user policy cannot set.

    ``patterns`` are the entries of files whose path has a ``*``; of equally specific ones the last is the strongest.
    ``units`` has patterns as well, in the same order.
    ``replaced`` has the built-in entries that entries of the user replace, for explanations. ``unlisted`` are rules for
    files without an entry: a file of the host may name their directory.
    """

    files: Mapping[str, Entry] = field(default_factory=dict)
    patterns: Mapping[str, Entry] = field(default_factory=dict)
    units: Mapping[str, Entry] = field(default_factory=dict)
    sshkey: Entry | None = None
    fields: Mapping[str, Entry] = field(default_factory=dict)
    replaced: tuple[Entry, ...] = ()
    unlisted: tuple[Rule, ...] = ()


class MatchKind(StrEnum):
    """How an entry matches, the strongest first."""

    EXACT = "exact"
    PATTERN = "pattern"
    DIRECTORY = "directory"


@dataclass(frozen=True, slots=True)
class PolicyMatch:
    """A matching entry."""

    entry: Entry
    kind: MatchKind


def clean_path(path: str) -> str:
    """Return the key of a path: ``/etc/x/`` and ``/etc/x`` are the same entry, a file or everything below."""
    return path.rstrip("/") or "/"


def match(policy: Policy, change: Change) -> PolicyMatch | None:
    """Return the entry that matches ``change``, None if it is unlisted."""
    if change.domain == "file":
        return _match_path(policy.files, policy.patterns, change.key)
    if change.domain == "unit":
        if (entry := policy.units.get(change.key)) is None and (patterns := unit_patterns(policy, change.key)):
            return PolicyMatch(patterns[0], MatchKind.PATTERN)
    elif change.domain in USER_DOMAINS:
        entry = policy.sshkey
    else:
        entry = policy.fields.get(change.domain)
    return PolicyMatch(entry, MatchKind.EXACT) if entry else None


def unit_patterns(policy: Policy, unit: str) -> list[Entry]:
    """Return the entries whose pattern matches a unit, the most specific first. That of a template matches its
    instances."""
    matching = [entry for key, entry in policy.units.items() if key != unit and unit_pattern.matches(key, unit)]
    # Of equally specific patterns the last one is the strongest.
    return sorted(matching, key=lambda entry: unit_pattern.specificity(entry.key))[::-1]


def _match_path(files: Mapping[str, Entry], patterns: Mapping[str, Entry], path: str) -> PolicyMatch | None:
    if (entry := files.get(path)) is not None:
        return PolicyMatch(entry, MatchKind.EXACT)
    if matching := [entry for entry in patterns.values() if matches(entry.key, path)]:
        # ``max`` returns the first of equals, and the last entry is the strongest.
        return PolicyMatch(max(reversed(matching), key=lambda pattern: specificity(pattern.key)), MatchKind.PATTERN)
    above = path
    # Up to the root, for which no policy may have an entry.
    while (end := above.rfind("/")) > 0:
        above = above[:end]
        if (entry := files.get(above)) is not None:
            return PolicyMatch(entry, MatchKind.DIRECTORY)
    return None


def only_by_user(policy: Policy, change: Change) -> bool:
    """Return whether only an entry of the user matches ``change``; without it the host would reboot."""
    matched = match(policy, change)
    if matched is None or matched.entry.source not in CHOSEN:
        return False
    # The built-in policy is restored from what the user's entries replaced, because only the merged one is kept.
    built_in = {entry.key: entry for entry in policy.replaced}
    if change.domain == "file":
        listed = {key: entry for key, entry in policy.files.items() if entry.source not in CHOSEN}
        # No built-in entry is a pattern.
        return _match_path({**built_in, **listed}, {}, change.key) is None
    return matched.entry.key not in built_in


def merge(weaker: Policy, user: Policy) -> Policy:
    """Return the entries of ``weaker``, replaced by those of ``user`` with the same key."""
    hidden = [weaker.files[key] for key in user.files if key in weaker.files]
    hidden += [weaker.units[key] for key in user.units if key in weaker.units]
    if user.sshkey and weaker.sshkey:
        hidden.append(weaker.sshkey)
    # An entry of the user that another one replaces was never built in.
    built_in = [entry for entry in hidden if entry.source is PolicySource.DEFAULT]
    patterns = {key: entry for key, entry in weaker.patterns.items() if key not in user.patterns}
    return replace(
        weaker,
        files={**weaker.files, **user.files},
        patterns={**patterns, **user.patterns},
        units={**{key: entry for key, entry in weaker.units.items() if key not in user.units}, **user.units},
        sshkey=user.sshkey or weaker.sshkey,
        replaced=(*weaker.replaced, *built_in),
    )


def drop_in_directory(policy: str) -> str:
    """Return the directory of the drop-ins of the file ``policy``: its name with another ending.

    ``/etc/nodeagent/policy.yaml`` has its drop-ins in ``/etc/nodeagent/policy.d``. They are merged key by key over the
    file, in the order of their names: the last one wins.
    """
    directory, _, name = policy.rpartition("/")
    return f"{directory}/{name.rpartition('.')[0] or name}.d"


def is_drop_in(name: str) -> bool:
    """Return whether a file of this name in the directory counts."""
    # Editors and package managers leave hidden files and files with other endings.
    return name.endswith(".yaml") and not name.startswith(".")


def is_policy_file(policy: str, path: str) -> bool:
    """Return whether ``path`` is ``policy``, the value of the setting, or one of its drop-ins."""
    directory, _, name = path.rpartition("/")
    return bool(policy) and (path == policy or (directory == drop_in_directory(policy) and is_drop_in(name)))


def merge_order(policy: str, paths: Iterable[str]) -> list[str]:
    """Return these policy files from the weakest to the strongest."""
    return sorted(paths, key=lambda path: (path != RECOMMENDED, path != policy, path))


def layered(built_in: Policy, layers: Iterable[Policy]) -> Policy:
    """Return ``built_in`` with the entries of ``layers`` over it, the strongest last."""
    return reduce(merge, layers, built_in)
