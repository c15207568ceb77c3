"""The configuration domains: all that nodeagent knows about particular files and services of a host.

One module for each, listed here by hand. The built-in disruption policy is put together from them and stands nowhere
else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Final, TypeVar

from nodeagent.core.config.file_tree import RegularFile, expand
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.change import Action
from nodeagent.core.plan.diff import differing
from nodeagent.core.plan.domain import Checker, Domain, Health, RuleEntry, owns
from nodeagent.core.plan.policy import SSHKEY, Entry, Policy
from nodeagent.core.validate import access
from nodeagent.domains import (
    ca_trust,
    crio,
    iri_registry,
    kubelet,
    network,
    nodeagent,
    osimage,
    pull_secret,
    registries,
    signatures,
    sshd,
    sudoers,
    units,
)
from nodeagent.errors import Problem

__all__ = [
    "DOMAINS",
    "changed_contents",
    "checker_of",
    "default_policy",
    "domain_of",
    "health_of",
    "validate",
    "warnings",
]

Value = TypeVar("Value")

DOMAINS: Final[tuple[Domain, ...]] = (
    pull_secret.DOMAIN,
    signatures.DOMAIN,
    registries.DOMAIN,
    ca_trust.DOMAIN,
    crio.DOMAIN,
    kubelet.DOMAIN,
    iri_registry.DOMAIN,
    network.DOMAIN,
    sshd.DOMAIN,
    sudoers.DOMAIN,
    osimage.DOMAIN,
    nodeagent.DOMAIN,
    units.DOMAIN,
)


VALIDATED: Final = tuple({pattern.partition("*")[0] for domain in DOMAINS for pattern in domain.validate})
"""How all paths begin that have a validator: most files of a large config need no closer look."""


MAX_LINE: Final = 1024
"""Bytes of a file in which the end of the first line is looked for."""


@cache
def default_policy() -> Policy:
    """The built-in entries of all domains."""
    sshkeys = [domain.sshkey for domain in DOMAINS if domain.sshkey]
    return Policy(
        files=_entries(domain.files for domain in DOMAINS),
        units=_entries(domain.units for domain in DOMAINS),
        sshkey=Entry(SSHKEY, sshkeys[0]) if sshkeys else None,
        fields=_entries(domain.fields for domain in DOMAINS),
    )


def _entries(tables: Iterator[Mapping[str, tuple[Action, ...] | RuleEntry]]) -> dict[str, Entry]:
    return {
        key: Entry(key, rule=value.rule, summary=value.summary) if isinstance(value, RuleEntry) else Entry(key, value)
        for table in tables
        for key, value in table.items()
    }


def domain_of(path: str) -> Domain | None:
    """The domain that knows something about this path of the host."""
    for domain in DOMAINS:
        patterns = [*domain.files, *(f"{key}/" for key in domain.files), *domain.validate, *domain.checkers]
        if any(owns(pattern, path) for pattern in patterns):
            return domain
    return None


def checker_of(path: str) -> Checker | None:
    for domain in DOMAINS:
        for pattern, checker in domain.checkers.items():
            if owns(pattern, path):
                return checker
    return None


def health_of(unit: str) -> tuple[Health, ...]:
    """Checks of ``unit`` beyond what systemd says about it."""
    return tuple(health for domain in DOMAINS for health in domain.health if health.unit == unit)


def changed_contents(old: MachineConfig, new: MachineConfig, within: tuple[str, ...] = ("/",)) -> dict[str, bytes]:
    """Path to new content of every file, unit and drop-in whose content is not that of ``old``. Of files only those
    whose path begins with one of ``within``."""
    files = {path: new.files[path] for path in differing(old.files, new.files) if path.startswith(within)}
    units = {name: new.units[name] for name in differing(old.units, new.units)}
    had = expand(MachineConfig("", _same_keys(old.files, files), _same_keys(old.units, units)))
    changed: dict[str, bytes] = {}
    for path, node in expand(MachineConfig("", files, units)).items():
        was = had.get(path)
        if isinstance(node, RegularFile) and (not isinstance(was, RegularFile) or was.content != node.content):
            changed[path] = node.content
    return changed


def _same_keys(entries: Mapping[str, Value], keys: Iterable[str]) -> dict[str, Value]:
    return {key: entries[key] for key in keys if key in entries}


def validate(old: MachineConfig, new: MachineConfig) -> tuple[Problem, ...]:
    """What is wrong with contents that change, as far as it shows without a host. Paths are those of the host, or for
    a user that of its entry."""
    return (*_contents(old, new), *_scripts(old, new), *access.check(old, new))


def warnings(old: MachineConfig, new: MachineConfig) -> tuple[Problem, ...]:
    """What is allowed, and seldom meant."""
    found = [
        Problem(path, "is removed: images of private registries cannot be pulled without it")
        for path in pull_secret.DOMAIN.validate
        if path in old.files and path not in new.files
    ]
    for path in differing(old.files, new.files):
        content = new.files[path].content
        if content[:MAX_LINE].partition(b"\n")[0].endswith(b"\r") and b"\0" not in content[:MAX_LINE]:
            found.append(Problem(path, "has Windows line endings (CR LF), which many programs take for text"))
    return tuple(found)


def _contents(old: MachineConfig, new: MachineConfig) -> tuple[Problem, ...]:
    own = tuple(nodeagent.problems_of(old, new))
    return own + tuple(
        Problem(path, message)
        for path, content in changed_contents(old, new, VALIDATED).items()
        if path.startswith(VALIDATED)
        for domain in DOMAINS
        for pattern, check in domain.validate.items()
        if owns(pattern, path)
        for message in check(content)
    )


def _scripts(old: MachineConfig, new: MachineConfig) -> Iterator[Problem]:
    """Programs that the kernel could not start: it would look for an interpreter whose name ends in a CR."""
    for path in differing(old.files, new.files):
        content = new.files[path].content
        if content.startswith(b"#!") and content.partition(b"\n")[0].endswith(b"\r"):
            yield Problem(path, "has Windows line endings (CR LF): the kernel cannot find the interpreter in line 1")
