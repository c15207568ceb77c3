"""The SSH keys and the password hash of core: what would lock the admin out is found before it is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from nodeagent.core.config.machineconfig import CORE_USER, MachineConfig, UserEntry
from nodeagent.core.validate import password_hash, ssh_key
from nodeagent.errors import Problem

__all__ = ["check"]

PATH: Final = f"spec.config.passwd.users[{CORE_USER}]"
NOTHING: Final = UserEntry(CORE_USER)


def check(old: MachineConfig, new: MachineConfig) -> Iterator[Problem]:
    """Problems of keys and of the hash that ``old`` does not have: what is in force already is left alone."""
    was, now = old.users.get(CORE_USER, NOTHING), new.users.get(CORE_USER, NOTHING)
    for key in now.ssh_keys:
        if key not in was.ssh_keys and (problem := ssh_key.check(key)):
            yield Problem(f"{PATH}.sshAuthorizedKeys", problem)
    value = now.password_hash
    if value is not None and value != was.password_hash and (problem := password_hash.check(value)):
        yield Problem(f"{PATH}.passwordHash", problem)
