# SPDX-License-Identifier: Apache-2.0
"""The configuration domains: all that nodeagent knows about particular files and services of a host.

Listed here by hand: one module for each, and one for all that are tables only; those of features are in their folders.
The built-in disruption policy consists of their entries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Final, TypeVar

from nodeagent import installed
from nodeagent.core.config.file_tree import RegularFile, expand
from nodeagent.core.config.machineconfig import CORE_USER, MachineConfig
from nodeagent.core.config.odd_names import odd
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.problems import first_of
from nodeagent.core.config.unit_names import unit_name_problem
from nodeagent.core.plan.change import Action, Change, PolicySource
from nodeagent.core.plan.diff import differing
from nodeagent.core.plan.domain import ByContent, Checker, Domain, Health, ReloadProof, UnitFailure, owns
from nodeagent.core.plan.policy import SSHKEY, USER_DOMAINS, Entry, Policy
from nodeagent.core.plan.program import ProgramCheck
from nodeagent.core.plan.reconcile import NO_SETTINGS, PATH, check_access, check_reconcilable, loses_login, remedy
from nodeagent.core.plan.sides import HostView, Sides
from nodeagent.core.validate import started
from nodeagent.core.validate.encoded import doubt, mode_doubt
from nodeagent.domains import (
    containerd,
    crio,
    etcd,
    kubelet,
    network_manager,
    nodeagent,
    readers,
    registries,
    signatures,
    static_pods,
    sysctl,
    tables,
    units,
)
from nodeagent.errors import InvalidInput, Problem, Unreconcilable
from nodeagent.reasons import Reason

Value = TypeVar("Value")

# The first domain that owns a path decides. Units come last, because their patterns match the units of all others.
DOMAINS: Final[tuple[Domain, ...]] = (
    tables.PULL_SECRET,
    signatures.DOMAIN,
    registries.DOMAIN,
    tables.CA_TRUST,
    crio.DOMAIN,
    containerd.DOMAIN,
    kubelet.DOMAIN,
    static_pods.DOMAIN,
    etcd.DOMAIN,
    tables.IRI_REGISTRY,
    tables.NETWORK,
    network_manager.DOMAIN,
    tables.SSHD,
    tables.SUDOERS,
    sysctl.DOMAIN,
    tables.OS_IMAGE,
    nodeagent.DOMAIN,
    *installed.domains(),
    units.DOMAIN,
)

# Proofs that one program alone can give.
live_values = sysctl.DOMAIN.live_values
outdated = kubelet.DOMAIN.outdated
kept_back = kubelet.DOMAIN.kept_back

# tmp.conf of tmpfiles.d.
AGED: Final = "/var/tmp/"  # noqa: S108 - it is only named
# Bytes of a file in which the end of the first line is looked for.
MAX_LINE: Final = 1024

# The group of the keys and the password of a user.
_USER_GROUP: Final = f"user:{CORE_USER}"


@cache
def default_policy() -> Policy:
    """The built-in entries of all domains."""
    sshkeys = [domain.sshkey for domain in DOMAINS if domain.sshkey]
    return Policy(
        files=_entries((domain, domain.files) for domain in DOMAINS),
        units=_entries((domain, domain.units) for domain in DOMAINS),
        sshkey=Entry(SSHKEY, sshkeys[0]) if sshkeys else None,
        fields=_entries((domain, domain.fields) for domain in DOMAINS),
        # Files and the directory of manifests are settings of the kubelet, so no path of a table can name them.
        unlisted=(kubelet.DOMAIN.named, static_pods.DOMAIN.actions),
    )


def with_rules(recommended: Policy) -> Policy:
    """Return the recommended policy as such, with the rules of the domains in place of the actions of their entries."""
    rules = {key: (domain, rule) for domain in DOMAINS for key, rule in domain.opt_in.items()}

    def ruled(entries: Mapping[str, Entry]) -> dict[str, Entry]:
        decided = {
            key: replace(entry, rule=rules[key][0].actions, summary=rules[key][1].summary) if key in rules else entry
            for key, entry in entries.items()
        }
        return {key: replace(entry, source=PolicySource.RECOMMENDED) for key, entry in decided.items()}

    return replace(
        recommended,
        files=ruled(recommended.files),
        patterns=ruled(recommended.patterns),
        units=ruled(recommended.units),
    )


def _entries(tables: Iterator[tuple[Domain, Mapping[str, tuple[Action, ...] | ByContent]]]) -> dict[str, Entry]:
    return {
        key: Entry(key, rule=domain.actions, summary=value.summary)
        if isinstance(value, ByContent)
        else Entry(key, value)
        for domain, table in tables
        for key, value in table.items()
    }


def domain_of(path: str) -> Domain | None:
    """The domain that knows something about this path of the host."""
    for domain in DOMAINS:
        keys = (*domain.files, *domain.opt_in)
        patterns = [*keys, *(f"{key}/" for key in keys), *domain.contents, *domain.checkers]
        if any(owns(pattern, path) for pattern in patterns):
            return domain
    return None


def group_of(change: Change) -> str:
    """Return the name of the entries that are applied together with this one, or not at all."""
    if change.domain in USER_DOMAINS:
        return _USER_GROUP
    unit = change.key if change.domain == "unit" else _unit_of(change.key)
    for domain in DOMAINS:
        # A program with half of its changed files may do what neither config wants.
        if unit and domain.joined is not None and unit in domain.joined:
            return domain.name
    if unit:
        return f"unit:{unit}"
    file_domain = domain_of(change.key) if change.domain == "file" else None
    return file_domain.name if file_domain is not None and file_domain.joined is not None else change.id


def _unit_of(path: str) -> str:
    """Return the unit whose file or drop-in is at this path, "" if it is no such path."""
    directory, _, name = path.rpartition("/")
    if directory == UNIT_DIR:
        return name if unit_name_problem(name) is None else ""
    unit = directory.removeprefix(f"{UNIT_DIR}/").removesuffix(".d")
    return unit if directory == f"{UNIT_DIR}/{unit}.d" and unit_name_problem(unit) is None else ""


def is_fix(entry: str) -> bool:
    """Return whether the change with this id brings credentials, trust or access to a host."""
    kind, _, key = entry.partition(":")
    if kind in USER_DOMAINS:
        return True
    return kind == "file" and (domain := domain_of(key)) is not None and domain.fix


def checker_of(path: str) -> Checker | None:
    for domain in DOMAINS:
        for pattern, checker in domain.checkers.items():
            if owns(pattern, path):
                return checker
    return None


def health_of(unit: str, host: HostView) -> tuple[Health, ...]:
    """Checks of ``unit`` beyond what systemd says about it, with the files that the host has now."""
    return tuple(health for domain in DOMAINS for health in domain.verify(unit, host))


def reload_proof_of(unit: str) -> ReloadProof | None:
    """The proof that a reload of ``unit`` took effect, None if its job is the proof."""
    return next((proof for domain in DOMAINS for proof in domain.reload_proof if proof.unit == unit), None)


def reads(sides: Sides) -> frozenset[str]:
    """The files and directories of the host that the programs of all domains read."""
    return frozenset(path for domain in DOMAINS for path in domain.reads(sides))


def program_checks(sides: Sides) -> Sequence[ProgramCheck]:
    """The checks of the new side by programs of the host."""
    return [check for domain in DOMAINS for check in domain.programs(sides)]


def curable(failure: UnitFailure) -> bool:
    """Whether a reboot may mend the failure of a unit: not, if its domain knows better."""
    return all(domain.curable(failure) for domain in DOMAINS)


def changed_contents(old: MachineConfig, new: MachineConfig, within: tuple[str, ...] = ("/",)) -> dict[str, bytes]:
    """Path to new content of every file, unit and drop-in whose content is not that of ``old``. Of files only those
    whose path begins with one of ``within``."""
    files = {path: new.files[path] for path in differing(old.files, new.files) if path.startswith(within)}
    changed_units = {name: new.units[name] for name in differing(old.units, new.units)}
    # Only changed entries are expanded: a rendered config has hundreds of others.
    had = expand(MachineConfig("", _same_keys(old.files, files), _same_keys(old.units, changed_units)))
    changed: dict[str, bytes] = {}
    for path, node in expand(MachineConfig("", files, changed_units)).items():
        was = had.get(path)
        if isinstance(node, RegularFile) and (not isinstance(was, RegularFile) or was.content != node.content):
            changed[path] = node.content
    return changed


def _same_keys(entries: Mapping[str, Value], keys: Iterable[str]) -> dict[str, Value]:
    return {key: entries[key] for key in keys if key in entries}


def validate(old: MachineConfig, new: MachineConfig) -> tuple[Problem, ...]:
    """Return the problems of changed contents, as far as it shows without a host. Paths are those of the host, or for
    a user that of its entry."""
    return (
        *_contents(Sides(old, new)),
        *_scripts(old, new),
        *readers.ignored(old, new),
        *started.check(expand(old), expand(new)),
        *check_access(old, new),
    )


def check_update(
    old: MachineConfig,
    new: MachineConfig,
    name: str,
    *,
    on_host: bool = False,
    accepted: Collection[str] = (),
    acceptable: Mapping[str, str] = NO_SETTINGS,
) -> None:
    """Check that ``new`` has valid content and can be applied to a running host. ``name`` is that of the new config.

    Needs no host; ``on_host`` leaves out what is judged better there. ``accepted`` sections may change, and the hint
    names those that are ``acceptable``, see ``remedy``. Raises
    ``InvalidInput`` (``InvalidContent``) with the problems of both checks, or ``Unreconcilable``.
    """
    # Both checks run before one of them raises, so that one attempt shows all problems.
    invalid, fixed = validate(old, new), check_reconcilable(old, new, login=not on_host, accepted=accepted)
    if invalid:
        message = f"{name} has invalid content: {first_of(invalid, len(invalid))}"
        raise InvalidInput(message, reason=Reason.INVALID_CONTENT, problems=(*invalid, *fixed))
    if fixed:
        message = f"{name} cannot be applied to a running host: {first_of(fixed, len(fixed))}"
        raise Unreconcilable(message, problems=fixed, hint=remedy(fixed, acceptable))


def host_problems(sides: Sides) -> tuple[Problem, ...]:
    """Return the problems that the domains detect with the files of the host, without those of single files."""
    return tuple(problem for domain in DOMAINS for problem in domain.validate(sides, {}))


def warnings(old: MachineConfig, new: MachineConfig, host: HostView | None = None) -> tuple[Problem, ...]:
    """Return changes that are allowed but probably mistakes."""
    sides = Sides(old, new, host or HostView())
    problems = [
        Problem(path, "is removed: images of private registries cannot be pulled without it")
        for path in tables.PULL_SECRET.contents
        if path in old.files and path not in new.files
    ]
    if new.name != old.name and (message := odd(new.name)):
        problems.append(Problem("metadata.name", message))
    if host is None and loses_login(old, new):
        problems.append(Problem(PATH, "has no key and no password left: a host without a key of its own refuses that"))
    for path in differing(old.files, new.files):
        content = new.files[path].content
        doubts = (odd(path), readers.skipped(path), mode_doubt(new.files[path].mode), doubt(path, content))
        problems += (Problem(path, message) for message in doubts if message)
        if path.startswith(AGED):
            problems.append(Problem(path, "is removed by systemd-tmpfiles when it has not been used for a time (30d)"))
        # A NUL marks a binary file, in which CR LF ends no line.
        if content[:MAX_LINE].partition(b"\n")[0].endswith(b"\r") and b"\0" not in content[:MAX_LINE]:
            problems.append(Problem(path, "has Windows line endings (CR LF), which many programs take for text"))
    return (*problems, *(problem for domain in DOMAINS for problem in domain.warnings(sides)))


def _contents(sides: Sides) -> tuple[Problem, ...]:
    # Most files of a large config are known to no domain, and need no closer look. A domain that overrides ``validate``
    # gets all paths that any domain declares, whether they have a validator or not.
    tables = [table for domain in DOMAINS for table in (domain.contents, domain.checkers, domain.files)]
    prefixes = tuple({pattern.partition("*")[0] for table in tables for pattern in table})
    contents = changed_contents(sides.old, sides.new, prefixes)
    changed = {path: content for path, content in contents.items() if path.startswith(prefixes)}
    return tuple(problem for domain in DOMAINS for problem in domain.validate(sides, changed))


def _scripts(old: MachineConfig, new: MachineConfig) -> Iterator[Problem]:
    """Yield programs that the kernel could not start: it would look for an interpreter whose name ends in a CR."""
    for path in differing(old.files, new.files):
        content = new.files[path].content
        if content.startswith(b"#!") and content.partition(b"\n")[0].endswith(b"\r"):
            yield Problem(path, "has Windows line endings (CR LF): the kernel cannot find the interpreter in line 1")
