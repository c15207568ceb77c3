"""Check the SSH keys and the password hash of core, so that a config does not lock the admin out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from nodeagent.core.config.machineconfig import CORE_USER, MachineConfig, UserEntry
from nodeagent.core.validate import password_hash, ssh_key
from nodeagent.errors import Problem

__all__ = ["check"]

PATH: Final = f"spec.config.passwd.users[{CORE_USER}]"
_EMPTY: Final = UserEntry(CORE_USER)


def check(old: MachineConfig, new: MachineConfig) -> Iterator[Problem]:
    """Yield the problems of keys and of a hash that are not in ``old``."""
    was, now = old.users.get(CORE_USER, _EMPTY), new.users.get(CORE_USER, _EMPTY)
    for key in now.ssh_keys:
        if key not in was.ssh_keys and (problem := ssh_key.check(key)):
            yield Problem(f"{PATH}.sshAuthorizedKeys", problem)
    value = now.password_hash
    if value is not None and value != was.password_hash and (problem := password_hash.check(value)):
        yield Problem(f"{PATH}.passwordHash", problem)
