# SPDX-License-Identifier: Apache-2.0
"""The interface of a configuration domain: all that nodeagent knows about one program and its files.

A domain is pure: data in, data out. Adapters of the host read the files that it names, run the checks that it declares
and do the actions that it requests. ``Domain`` itself is the simplest domain, which knows paths and no contents; a
domain that knows more overrides its methods.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from nodeagent.core.enumerated import enumerated
from nodeagent.core.plan.change import Action, ActionType, Change, KeyChange
from nodeagent.core.plan.policy import DRAIN, NONE, REBOOT, Verdict
from nodeagent.core.plan.program import ProgramCheck
from nodeagent.core.plan.sides import HostView, Sides
from nodeagent.errors import Problem

# A function from the content of a file to its problems. Messages never quote content that may be secret.
Validate = Callable[[bytes], Iterable[str]]

# The Node of a cluster, in place of a unit.
NODE = ""

# Actions that come first in a verdict. The others keep their order.
ORDER = (ActionType.DRAIN, ActionType.DAEMON_RELOAD, ActionType.CLEAR_STATE, ActionType.STOP)


# Keys of one change in a plan. All keys count for the actions.
MAX_KEYS = 200


class Checker(StrEnum):
    """Programs of the host that check a file. ``host.checkers`` runs them."""

    SSHD = "sshd"
    VISUDO = "visudo"
    SYSTEMD_ANALYZE = "systemd-analyze"


@dataclass(frozen=True, slots=True)
class HttpHealth:
    """``unit`` is healthy if ``url`` answers with status 200. On loopback, without TLS and credentials."""

    unit: str
    url: str


@dataclass(frozen=True, slots=True)
class SocketHealth:
    """``unit`` is healthy if the Unix socket ``path`` accepts connections."""

    unit: str
    path: str


@dataclass(frozen=True, slots=True)
class PluginHealth:
    """``unit`` is containerd, and each of ``plugins`` that it has is in the state ok."""

    unit: str
    plugins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReloadProof:
    """The journal of ``unit`` has ``done`` after a reload, or ``failed`` if the program kept its old configuration.

    systemd's job succeeds in both cases. Both are parts of messages. ``running`` is the command that prints the
    configuration with which the program runs, as TOML, for a program that logged neither.
    """

    unit: str
    done: str
    failed: str
    running: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberHealth:
    """``unit`` is a member of etcd, and its cluster has it as a healthy voter."""

    unit: str


# A proof that a unit works, beyond being active. ``host.health`` runs them.
Health = HttpHealth | SocketHealth | PluginHealth | MemberHealth


@dataclass(frozen=True, slots=True)
class UnitFailure:
    """A unit that failed after an action of an update. ``result`` is that of systemd (exit-code, timeout, ...), "" for
    a unit that runs and is not healthy. ``keys`` are those that the update changes. ``unit`` may be ``NODE``: the units
    run, and the cluster does not see the node ready, or not with the capacity that the keys request."""

    unit: str
    result: str
    keys: tuple[KeyChange, ...] = ()


@dataclass(frozen=True, slots=True)
class ByContent:
    """An entry about which ``Domain.actions`` decides by the content. ``summary`` is its rule in a sentence."""

    summary: str


@dataclass(frozen=True)
class Domain:
    """A domain. The tables ``files``, ``contents`` and ``checkers`` are keyed by path, ``units`` by unit name.

    In ``contents`` and ``checkers`` a path that ends in ``/`` means everything below, and a name may be ``*`` with a
    suffix. In the policy (``files``) a key is a path, or a directory without the slash.

    ``joined``: the files are parts of one configuration, with these units, so that they are applied together or not at
    all. None: each file is independent. ``fix``: the domain brings trust or access, which a degraded host may need.
    ``opt_in`` has entries of the recommended policy, of files and of units, about which ``actions`` decides, instead of
    their own actions.
    """

    name: str
    files: Mapping[str, tuple[Action, ...] | ByContent] = field(default_factory=dict)
    units: Mapping[str, tuple[Action, ...] | ByContent] = field(default_factory=dict)
    fields: Mapping[str, ByContent] = field(default_factory=dict)
    sshkey: tuple[Action, ...] = ()
    contents: Mapping[str, Validate] = field(default_factory=dict)
    checkers: Mapping[str, Checker] = field(default_factory=dict)
    health: tuple[Health, ...] = ()
    reload_proof: tuple[ReloadProof, ...] = ()
    joined: tuple[str, ...] | None = None
    fix: bool = False
    opt_in: Mapping[str, ByContent] = field(default_factory=dict)

    def reads(self, _sides: Sides) -> Collection[str]:
        """Return the files of the host that the program reads; a path that ends in ``/`` means everything below.

        It is called again with what was read, until it names nothing new, because files name other files.
        """
        return ()

    def changes(self, _sides: Sides) -> Sequence[KeyChange]:
        """Return the keys that differ between both sides, as the program reads them. Raises nothing."""
        return ()

    def actions(self, change: Change, sides: Sides) -> Verdict:
        """Decide about a change of an entry that is ``ByContent``: by default, by the keys that it brings."""
        # All entries of a domain share one comparison: its documents are merged from many files, and this is called
        # for each entry.
        if self.name not in sides.kept:
            sides.kept[self.name] = tuple(self.changes(sides))
        return verdict_of([key for key in sides.kept[self.name] if key.document == change.key])

    def validate(self, _sides: Sides, changed: Mapping[str, bytes]) -> Iterator[Problem]:
        """Find the problems of ``changed``, the new contents by path, that show without a host."""
        for path, content in changed.items():
            for pattern, check in self.contents.items():
                if owns(pattern, path):
                    yield from (Problem(path, message) for message in check(content))

    def programs(self, _sides: Sides) -> Sequence[ProgramCheck]:
        """Return the checks of the new side by installed programs, before the first write."""
        return ()

    def warnings(self, _sides: Sides) -> Iterator[Problem]:
        """Find what is allowed but probably a mistake, on the new side with the files of the host."""
        return iter(())

    def verify(self, unit: str, _host: HostView) -> Sequence[Health]:
        """Return what proves that ``unit`` works with the files that the host has now."""
        return tuple(health for health in self.health if health.unit == unit)

    def curable(self, _failure: UnitFailure) -> bool:
        """Return whether a reboot may mend this failure. If not, the update is reverted without a reboot."""
        return True


def verdict_of(keys: Sequence[KeyChange]) -> Verdict:
    """Return the union of the actions of ``keys``. Files without a key that differs need no action."""
    if not keys:
        return Verdict((NONE,), "no key changes")
    merged: dict[tuple[ActionType, str], set[str]] = {}
    # None beside another action would be a contradiction.
    for action in (action for key in keys for action in key.actions if action != NONE):
        merged.setdefault((action.type, action.unit), set()).update(action.paths)
    actions = [Action(*key, paths=tuple(sorted(paths))) for key, paths in merged.items()]
    # A reboot ends all pods of the node, so it has the drain that the built-in policy gives it.
    if REBOOT in actions and DRAIN not in actions:
        actions.append(DRAIN)
    actions.sort(key=lambda action: ORDER.index(action.type) if action.type in ORDER else len(ORDER))
    return Verdict(tuple(actions) or (NONE,), enumerated(key.key for key in keys), tuple(keys[:MAX_KEYS]))


def owns(pattern: str, path: str) -> bool:
    """Return whether ``pattern`` matches ``path``."""
    if pattern.endswith("/"):
        return path.startswith(pattern)
    if "*" not in pattern:
        return path == pattern
    wanted, names = pattern.split("/"), path.split("/")
    return len(wanted) == len(names) and all(
        name.endswith(want[1:]) if want.startswith("*") else name == want
        for want, name in zip(wanted, names, strict=True)
    )
