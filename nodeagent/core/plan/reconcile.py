"""Whether a config can be applied to a running host.

The rules are those of the machine-config-operator with one difference: its daemon partly refuses and partly ignores
changes in sections that it does not apply. Here all of them are refused, so that an accepted config is fully applied.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from nodeagent.core.config import unsupported
from nodeagent.core.config.machineconfig import CORE_USER, MachineConfig, UserEntry
from nodeagent.core.validate import access, ssh_key
from nodeagent.errors import Problem

_INSTALLATION: Final = ("fips", "config.storage.disks", "config.storage.filesystems", "config.storage.luks",
                        "config.storage.raid", "config.ignition")  # fmt: skip


def check_reconcilable(old: MachineConfig, new: MachineConfig) -> tuple[Problem, ...]:
    """Return the problems that prevent a change from ``old`` to ``new``, sorted by path."""
    problems = [
        Problem(f"spec.config.{section}", f"{_verb(old, new, section)}: {unsupported.why(section)}")
        for section in old.unapplied.keys() | new.unapplied.keys()
        if old.unapplied.get(section) != new.unapplied.get(section)
    ]
    if old.fips != new.fips:
        was = "on to off" if old.fips else "off to on"
        problems.append(Problem("spec.fips", f"changes from {was}: FIPS mode cannot change on an installed host"))
    # An unchanged user is as the host has it already, so it must not keep other changes away.
    core = new.users.get(CORE_USER)
    if core is not None and core != old.users.get(CORE_USER) and not _has_access(core):
        message = f"{CORE_USER} must have at least one SSH key or a password hash, or it is locked out"
        problems.append(Problem(f"spec.config.passwd.users[{CORE_USER}]", message))
    return tuple(sorted(problems))


def remedy(problems: Iterable[Problem]) -> str:
    """Return the next steps for these problems, each once."""
    return "; ".join(dict.fromkeys(_remedy_of(problem.path.removeprefix("spec.")) for problem in problems))


def _remedy_of(path: str) -> str:
    if path == f"config.passwd.users[{CORE_USER}]":
        return f"give {CORE_USER} an SSH key or a password hash"
    if path.startswith(_INSTALLATION):
        return "revert the change, or reinstall the host with it"
    return f"remove the change of {path.removeprefix('config.').partition('[')[0]} from the config"


def _has_access(user: UserEntry) -> bool:
    if any(ssh_key.is_key(key) for key in user.ssh_keys):
        return True
    # A locked hash lets no login in, at the console either.
    return user.password_hash is not None and not access.is_locked(user.password_hash)


def _verb(old: MachineConfig, new: MachineConfig, section: str) -> str:
    if section not in old.unapplied:
        return "is added"
    return "changes" if section in new.unapplied else "is removed"
