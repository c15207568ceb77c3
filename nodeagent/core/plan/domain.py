"""The declarations of a configuration domain: the entries of the default policy, checks of its files before they are
written, and health checks of its services.

Declarations are data. ``domains.validate`` calls the pure checks; adapters of the host run the checkers and the health
checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from nodeagent.core.plan.change import Action
from nodeagent.core.plan.policy import Rule

__all__ = ["Checker", "Domain", "Health", "HttpHealth", "RuleEntry", "SocketHealth", "Validate", "owns"]

Validate = Callable[[bytes], Iterable[str]]
"""A function from the content of a file to its problems. Messages never quote content that may be secret."""


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


Health = HttpHealth | SocketHealth


@dataclass(frozen=True, slots=True)
class RuleEntry:
    """An entry whose actions depend on the content. ``summary`` is the rule in a sentence."""

    rule: Rule
    summary: str


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain. ``files`` and ``validate`` are keyed by path, ``units`` by unit name.

    In ``validate`` and ``checkers`` a path that ends in ``/`` means everything below, and a name may be ``*`` with a
    suffix. In the policy a key is a path, or a directory without the slash.
    """

    name: str
    title: str
    files: Mapping[str, tuple[Action, ...] | RuleEntry] = field(default_factory=dict)
    units: Mapping[str, tuple[Action, ...]] = field(default_factory=dict)
    fields: Mapping[str, RuleEntry] = field(default_factory=dict)
    sshkey: tuple[Action, ...] = ()
    validate: Mapping[str, Validate] = field(default_factory=dict)
    checkers: Mapping[str, Checker] = field(default_factory=dict)
    health: tuple[Health, ...] = ()


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
