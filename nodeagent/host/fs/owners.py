# SPDX-License-Identifier: Apache-2.0
"""Names of users and groups to numbers.

On ostree hosts the accounts of the OS are in /usr/lib/passwd and group, which the C library reads with the nss-altfiles
module. A bundled interpreter may not be able to load that module, so these files are read first, and the C library last
(for sssd and others). Nothing is cached: the update itself may have added the user.
"""

from __future__ import annotations

import grp
import pwd
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nodeagent.errors import Terminal
from nodeagent.host.fs.os_errors import translated
from nodeagent.reasons import Reason


@dataclass(frozen=True, slots=True)
class PasswdEntry:
    """An account."""

    name: str
    uid: int
    gid: int
    home: str = ""
    comment: str = ""


def colon_fields(path: Path) -> Iterator[list[str]]:
    """Yield the split lines of a passwd-like file, none if it is missing."""
    with translated("read", str(path)):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return
    for line in data.decode(errors="surrogateescape").splitlines():
        yield line.split(":")


class Owners:
    """The accounts of a host. ``root`` is the directory of the files; the C library is used for "/" only."""

    def __init__(self, root: str = "/") -> None:
        self._root = Path(root)
        self._use_libc = root == "/"

    def uid(self, user: int | str) -> int:
        """Return the number of a user. Raises ``Terminal`` (``UnknownUser``)."""
        # As for chown(2), a number needs no account: its user may exist in a container only.
        if isinstance(user, int):
            return user
        entry = self.user(user)
        if entry is None:
            raise Terminal(f"this host has no user {user!r}", reason=Reason.UNKNOWN_USER)
        return entry.uid

    def gid(self, group: int | str) -> int:
        """Return the number of a group. Raises ``Terminal`` (``UnknownGroup``)."""
        if isinstance(group, int):
            return group
        for fields in self._lines("group", 3):
            if fields[0] == group and fields[2].isdecimal():
                return int(fields[2])
        if self._use_libc:
            try:
                return grp.getgrnam(group).gr_gid
            except KeyError:
                pass
        raise Terminal(f"this host has no group {group!r}", reason=Reason.UNKNOWN_GROUP)

    def user(self, user: int | str) -> PasswdEntry | None:
        """Return an account by name or number, None if there is none."""
        for fields in self._lines("passwd", 4):
            if not (fields[2].isdecimal() and fields[3].isdecimal()):
                continue
            home, comment = (fields[5], fields[4]) if len(fields) > 5 else ("", "")
            entry = PasswdEntry(fields[0], int(fields[2]), int(fields[3]), home, comment)
            if user in (entry.name, entry.uid):
                return entry
        if self._use_libc:
            try:
                account = pwd.getpwnam(user) if isinstance(user, str) else pwd.getpwuid(user)
            # A number that the kernel cannot have is no account either.
            except (KeyError, OverflowError):
                return None
            return PasswdEntry(account.pw_name, account.pw_uid, account.pw_gid, account.pw_dir, account.pw_gecos)
        return None

    def memberships(self, user: str) -> frozenset[str]:
        """Return the groups of which the user is a member by name."""
        lines = self._lines("group", 4)
        return frozenset(fields[0] for fields in lines if user in fields[3].split(","))

    def local_group(self, group: str) -> bool:
        """Return whether the tools of accounts can change the group: those of /usr/lib/group are of the OS."""
        return any(fields[0] == group for fields in colon_fields(self._root / "etc" / "group"))

    def primary_group(self, user: int | str) -> int:
        """Return the primary group of a user, -1 if no account has the number: chown then keeps the group."""
        if user == 0:
            return 0
        entry = self.user(user)
        return entry.gid if entry is not None else -1

    def _lines(self, name: str, least: int) -> Iterator[list[str]]:
        # An admin's entry in /etc hides the one of the OS, as in nsswitch.conf of these hosts ("files altfiles").
        for folder in ("etc", "usr/lib"):
            for fields in colon_fields(self._root / folder / name):
                # NIS lines ("+user::") are no accounts of this host.
                if len(fields) >= least and fields[0] and fields[0][0] not in "+-#":
                    yield fields
