# SPDX-License-Identifier: Apache-2.0
"""What a config must not do: take the last way to log in away unconfirmed, or need what this host does not fetch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nodeagent.core.config.fetched import fetched_of
from nodeagent.core.config.file_tree import FileTreeEntry, RegularFile, expand, node_of
from nodeagent.core.config.machineconfig import CORE_USER, MachineConfig
from nodeagent.core.config.paths import ssh_keys_path
from nodeagent.core.plan import reconcile
from nodeagent.core.plan.steps import LockUser, RemovePath, SetPassword, WritePath, WriteStep
from nodeagent.core.validate import ssh_key
from nodeagent.errors import Problem, Unreconcilable
from nodeagent.reasons import Reason
from nodeagent.update.run import Ports
from nodeagent.update.steps.originals import original_of

# The files with which sshd admits the user. Only the first is of the keys of a config.
KEY_FILES: Final = (ssh_keys_path(CORE_USER), f"/home/{CORE_USER}/.ssh/authorized_keys")
# On ostree hosts /home is a link, and a config may name the same files by either path.
OTHER_HOME: Final = "/var"


async def check_login(ports: Ports, old: MachineConfig, new: MachineConfig, writes: Sequence[WriteStep]) -> None:
    """Raise ``Unreconcilable`` (``Lockout``) if ``core`` can log in now, and cannot after these writes."""
    if not any(map(_concerns_login, writes)):
        # Whatever the host has of keys and password, it stays.
        return
    if await _admits_after(ports, old, new) or not await _admits_now(ports):
        return
    message = f"{CORE_USER} would be locked out: {new.name} takes away its last SSH key or password"
    problem = Problem(reconcile.PATH, "must have at least one SSH key or a password hash, or core is locked out")
    raise Unreconcilable(message, reason=Reason.LOCKOUT, problems=(problem,), hint=Reason.LOCKOUT.hint)


def _concerns_login(step: WriteStep) -> bool:
    match step:
        case SetPassword() | LockUser():
            return True
        case WritePath(path) | RemovePath(path):
            return path.removeprefix(OTHER_HOME) in KEY_FILES
        case _:
            return False


async def _admits_now(ports: Ports) -> bool:
    if _is_usable(await ports.users.password_hash(CORE_USER)):
        return True
    return any([_has_key(await ports.files.capture(path)) for path in KEY_FILES])


async def _admits_after(ports: Ports, old: MachineConfig, new: MachineConfig) -> bool:
    was, now = old.users.get(CORE_USER), new.users.get(CORE_USER)
    if now is not None and now.password_hash is not None:
        usable = _is_usable(now.password_hash)
    else:
        # A password that leaves the config is locked.
        usable = (was is None or was.password_hash is None) and _is_usable(await ports.users.password_hash(CORE_USER))
    if usable:
        return True
    had, wants = expand(old), expand(new)
    entries: list[FileTreeEntry | None]
    for path in KEY_FILES:
        names = (path, f"{OTHER_HOME}{path}")
        entries = [wants[name] for name in names if name in wants]
        entries = entries or [(await original_of(ports, name)).node for name in names if name in had]
        if any(map(_has_key, entries or [await ports.files.capture(path)])):
            return True
    return False


def _is_usable(value: str | None) -> bool:
    # Without a password, an account that is not locked may be entered by anyone: that is no way in to count on.
    return bool(value) and not reconcile.is_locked(value or "")


def _has_key(entry: FileTreeEntry | None) -> bool:
    if not isinstance(entry, RegularFile):
        return False
    return any(ssh_key.is_key(line) for line in entry.content.decode(errors="replace").splitlines())


def check_fetched(ports: Ports, old: MachineConfig, new: MachineConfig) -> None:
    """Raise ``Unreconcilable`` if the update needs what no feature of this host fetches."""
    had = expand(old)
    paths = [path for path, link in fetched_of(new).items() if had.get(path) != node_of(link)]
    if paths and not any(guard.fetches() for guard in ports.guards):
        message = f"{new.name} has files that are fetched from a server, and this host fetches none"
        raise Unreconcilable(message, problems=[Problem(path, "is not fetched on this host") for path in paths])
