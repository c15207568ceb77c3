"""Whether a config can be applied to a running host at all.

The rules are those of the machine-config-operator with one difference: there, changes in sections that its daemon
does not apply are partly refused and partly ignored; here every one is refused, so that what was accepted was applied.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from nodeagent.core.config import unsupported
from nodeagent.core.config.machineconfig import CORE_USER, MachineConfig, UserEntry
from nodeagent.core.validate import access, ssh_key
from nodeagent.errors import Problem

__all__ = ["check_reconcilable", "remedy"]

_INSTALLATION: Final = ("fips", "config.storage.disks", "config.storage.filesystems", "config.storage.luks",
                        "config.storage.raid", "config.ignition")  # fmt: skip


def check_reconcilable(old: MachineConfig, new: MachineConfig) -> tuple[Problem, ...]:
    """What forbids the way from ``old`` to ``new``, sorted by path; empty if nothing does."""
    problems = [
        Problem(f"spec.config.{section}", f"{_verb(old, new, section)}: {unsupported.why(section)}")
        for section in old.unapplied.keys() | new.unapplied.keys()
        if old.unapplied.get(section) != new.unapplied.get(section)
    ]
    if old.fips != new.fips:
        was = "on to off" if old.fips else "off to on"
        problems.append(Problem("spec.fips", f"changes from {was}: FIPS mode cannot change on an installed host"))
    core = new.users.get(CORE_USER)
    if core is not None and core != old.users.get(CORE_USER) and not _has_access(core):
        message = f"{CORE_USER} must have at least one SSH key or a password hash, or it is locked out"
        problems.append(Problem(f"spec.config.passwd.users[{CORE_USER}]", message))
    return tuple(sorted(problems))


def remedy(problems: Iterable[Problem]) -> str:
    """What to do about these problems, each way out once."""
    return "; ".join(dict.fromkeys(_way_out(problem.path.removeprefix("spec.")) for problem in problems))


def _way_out(path: str) -> str:
    if path == f"config.passwd.users[{CORE_USER}]":
        return f"give {CORE_USER} an SSH key or a password hash"
    if path.startswith(_INSTALLATION):
        return "take the change back, or install the host again with it"
    return f"take the change of {path.removeprefix('config.').partition('[')[0]} out of the config"


def _has_access(user: UserEntry) -> bool:
    if any(ssh_key.is_key(key) for key in user.ssh_keys):
        return True
    return user.password_hash is not None and not access.is_locked(user.password_hash)


def _verb(old: MachineConfig, new: MachineConfig, section: str) -> str:
    if section not in old.unapplied:
        return "is added"
    return "changes" if section in new.unapplied else "is removed"
