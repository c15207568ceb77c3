"""The node disruption policy: what a change to a path, a unit or the users of a host asks for.

A policy is a lookup table. Paths match exactly or by the longest directory above them, units by their exact name,
everything about users by the one ``sshkey`` entry. What no entry matches is unlisted, and the caller then assumes the
worst. Entries say who wrote them, because the first question after a surprise is "is this mine or built in?".

Rules as in ``spec.nodeDisruptionPolicy`` of operator.openshift.io/v1 MachineConfiguration; ``policy_parse`` reads one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.change import Action, ActionType, Change, PolicySource

__all__ = [
    "DAEMON_RELOAD",
    "DRAIN",
    "NONE",
    "REBOOT",
    "SSHKEY",
    "UNLISTED",
    "Entry",
    "Match",
    "Policy",
    "Rule",
    "Verdict",
    "clean_path",
    "match",
    "merge",
    "only_by_user",
    "reload",
    "restart",
]

NONE = Action(ActionType.NONE)
DRAIN = Action(ActionType.DRAIN)
DAEMON_RELOAD = Action(ActionType.DAEMON_RELOAD)
REBOOT = Action(ActionType.REBOOT)
UNLISTED = (DRAIN, REBOOT)
"""What a change that no entry matches asks for: we do not know who reads it, so everybody starts afresh."""

SSHKEY = "sshkey"
USER_DOMAINS = (SSHKEY, "password")
"""The one ``sshkey`` entry decides about every change to a user, as it does in the field."""


def reload(unit: str) -> Action:
    return Action(ActionType.RELOAD, unit)


def restart(unit: str) -> Action:
    return Action(ActionType.RESTART, unit)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule decided about one pair of configs. ``why`` is a phrase for people, without content of the file."""

    actions: tuple[Action, ...]
    why: str


Rule = Callable[[MachineConfig, MachineConfig], Verdict]
"""For the few entries whose actions depend on what exactly changed."""


@dataclass(frozen=True, slots=True)
class Entry:
    """``key`` is a path without trailing slash, a unit name, ``sshkey`` or a field of the MachineConfig.

    ``rule`` decides instead of ``actions`` where it is set; ``summary`` then says for people how.
    """

    key: str
    actions: tuple[Action, ...] = ()
    source: PolicySource = PolicySource.DEFAULT
    rule: Rule | None = None
    summary: str = ""

    def decide(self, old: MachineConfig, new: MachineConfig) -> Verdict:
        return self.rule(old, new) if self.rule else Verdict(self.actions, "")


@dataclass(frozen=True, slots=True)
class Policy:
    """``fields`` is for the parts of a MachineConfig that are neither files, units nor users; users cannot set it.

    ``replaced`` keeps the built-in entries that the user's hide, for explanations.
    """

    files: Mapping[str, Entry] = field(default_factory=dict)
    units: Mapping[str, Entry] = field(default_factory=dict)
    sshkey: Entry | None = None
    fields: Mapping[str, Entry] = field(default_factory=dict)
    replaced: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Match:
    """``exact`` is false for a directory above the path."""

    entry: Entry
    exact: bool


def clean_path(path: str) -> str:
    """The key of a path in a policy: ``/etc/x/`` and ``/etc/x`` mean the same entry, a file or everything below."""
    return path.rstrip("/") or "/"


def match(policy: Policy, change: Change) -> Match | None:
    """The entry that decides about ``change``; None if it is unlisted."""
    if change.domain == "file":
        return _match_path(policy.files, change.key)
    if change.domain == "unit":
        entry = policy.units.get(change.key)
    elif change.domain in USER_DOMAINS:
        entry = policy.sshkey
    else:
        entry = policy.fields.get(change.domain)
    return Match(entry, exact=True) if entry else None


def _match_path(files: Mapping[str, Entry], path: str) -> Match | None:
    if (entry := files.get(path)) is not None:
        return Match(entry, exact=True)
    above = path
    while (end := above.rfind("/")) > 0:
        above = above[:end]
        if (entry := files.get(above)) is not None:
            return Match(entry, exact=False)
    return None


def only_by_user(policy: Policy, change: Change) -> bool:
    """Whether ``change`` is listed by an entry of the admin alone, so that without it the host would be rebooted."""
    found = match(policy, change)
    if found is None or found.entry.source is not PolicySource.USER:
        return False
    built_in = {entry.key: entry for entry in policy.replaced}
    if change.domain == "file":
        listed = {key: entry for key, entry in policy.files.items() if entry.source is not PolicySource.USER}
        return _match_path({**built_in, **listed}, change.key) is None
    return found.entry.key not in built_in


def merge(default: Policy, user: Policy) -> Policy:
    """``default`` with every entry replaced for which ``user`` has one with the same key."""
    hidden = [default.files[key] for key in user.files if key in default.files]
    hidden += [default.units[key] for key in user.units if key in default.units]
    if user.sshkey and default.sshkey:
        hidden.append(default.sshkey)
    return replace(
        default,
        files={**default.files, **user.files},
        units={**default.units, **user.units},
        sshkey=user.sshkey or default.sshkey,
        replaced=(*default.replaced, *hidden),
    )
