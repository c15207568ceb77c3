"""Names of users and groups to numbers.

On ostree hosts the accounts of the OS are in /usr/lib/passwd and group, which the C library finds through the
nss-altfiles module. A bundled interpreter may load no such module, so these files are read here first and the C
library is asked last (for sssd and the like). Nothing is cached: an update may itself have just added the user.
"""

from __future__ import annotations

import grp
import pwd
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nodeagent.errors import Terminal
from nodeagent.host.fs.os_errors import translated

__all__ = ["Owners", "PasswdEntry", "colon_fields"]


@dataclass(frozen=True, slots=True)
class PasswdEntry:
    name: str
    uid: int
    gid: int


def colon_fields(path: Path) -> Iterator[list[str]]:
    """The lines of a passwd-like file, split; nothing if there is no such file."""
    with translated("read", str(path)):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return
    for line in data.decode(errors="surrogateescape").splitlines():
        yield line.split(":")


class Owners:
    """``root`` is the directory that the files are below; the C library is asked only about the real one."""

    def __init__(self, root: str = "/") -> None:
        self._root = Path(root)
        self._ask_libc = root == "/"

    def uid(self, user: int | str) -> int:
        """Raises ``Terminal`` with reason ``UnknownUser``."""
        if isinstance(user, int):
            return user
        entry = self.user(user)
        if entry is None:
            raise Terminal(f"this host has no user {user!r}", reason="UnknownUser")
        return entry.uid

    def gid(self, group: int | str) -> int:
        """Raises ``Terminal`` with reason ``UnknownGroup``."""
        if isinstance(group, int):
            return group
        for fields in self._lines("group", 3):
            if fields[0] == group and fields[2].isdecimal():
                return int(fields[2])
        if self._ask_libc:
            try:
                return grp.getgrnam(group).gr_gid
            except KeyError:
                pass
        raise Terminal(f"this host has no group {group!r}", reason="UnknownGroup")

    def user(self, user: int | str) -> PasswdEntry | None:
        """By name or by number."""
        for fields in self._lines("passwd", 4):
            if not (fields[2].isdecimal() and fields[3].isdecimal()):
                continue
            entry = PasswdEntry(fields[0], int(fields[2]), int(fields[3]))
            if user in (entry.name, entry.uid):
                return entry
        if self._ask_libc:
            try:
                known = pwd.getpwnam(user) if isinstance(user, str) else pwd.getpwuid(user)
            except (KeyError, OverflowError):
                return None
            return PasswdEntry(known.pw_name, known.pw_uid, known.pw_gid)
        return None

    def primary_group(self, user: int | str) -> int:
        """For directories, where only the user is given. For a number that no account has, -1: chown leaves it."""
        if user == 0:
            return 0
        entry = self.user(user)
        return entry.gid if entry is not None else -1

    def _lines(self, name: str, least: int) -> Iterator[list[str]]:
        for folder in ("etc", "usr/lib"):
            for fields in colon_fields(self._root / folder / name):
                # The old NIS lines ("+user::") name nobody of this host.
                if len(fields) >= least and fields[0] and fields[0][0] not in "+-#":
                    yield fields
