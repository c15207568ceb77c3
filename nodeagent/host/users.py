# SPDX-License-Identifier: Apache-2.0
"""Local users: accounts, memberships and password hashes, written by the tools of shadow-utils.

``chpasswd`` takes the lock of all account tools, keeps the other fields and the label of the file, and reads the hash
from its standard input, so that it appears in no process list. All supported hosts have shadow-utils; without it the
update fails instead of editing the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nodeagent.core.config.machineconfig import UserEntry
from nodeagent.core.config.paths import home_path
from nodeagent.core.config.users import FIRST_UID
from nodeagent.errors import InvalidInput, Retryable, Terminal
from nodeagent.host.fs.atomic import sync_directory
from nodeagent.host.fs.os_errors import translated
from nodeagent.host.fs.owners import Owners, PasswdEntry, colon_fields
from nodeagent.host.programs import ProgramLate, run_program
from nodeagent.reasons import Reason
from nodeagent.update.ports.host import HostAccount

_NO_PASSWORD = "*"  # noqa: S105 - matches no password
# Fields of the shadow file.
_PASSWORD: Final = 1
_EXPIRES: Final = 7
# The day, since 1970, on which a retired account expired. Day 0 may count as none: shadow(5).
_LONG_AGO: Final = "1"
# The comment of an account from the first write of useradd, the line in passwd, until all of it is on the disk. useradd
# writes shadow, group, gshadow, subuid, subgid and the home after that line, and a kill ends it anywhere.
_UNFINISHED: Final = "unfinished account of nodeagent"


def locked(value: str) -> str:
    """Return the hash in its locked form, which ``passwd -u`` reverses.

    An empty hash becomes ``!*``, so that the same command leaves ``*`` and not an account without a password.
    """
    if value.startswith(("!", "*")):
        return value
    return f"!{value or _NO_PASSWORD}"


class HostUsers:
    """Implements ``ports.Users``.

    ``root`` is the directory of etc. ``deadline`` is in seconds, for chpasswd, which waits up to 15 s for the lock.
    """

    def __init__(self, root: str = "/", *, deadline: float = 30.0) -> None:
        self._root = root
        self._owners = Owners(root)
        self._deadline = deadline

    async def password_hash(self, user: str) -> str | None:
        return await asyncio.to_thread(self._read, user)

    async def set_password_hash(self, user: str, value: str) -> None:
        """Set the hash. Raises ``InvalidInput`` for an empty one, which would allow logins without a password."""
        # These characters separate fields and lines of shadow, so a hash could add an account.
        if not value or any(char in value for char in ":\n\r\0"):
            raise InvalidInput(
                f"the password hash of {user} is empty or has an illegal character", reason=Reason.BAD_HASH
            )
        if await self.password_hash(user) is None:
            raise Terminal(f"this host has no user {user!r}", reason=Reason.UNKNOWN_USER)
        # chpasswd takes the lock of the account files and updates shadow atomically, like every other tool.
        await self._chpasswd(user, value)
        await asyncio.to_thread(self._sync)
        # The result is read back, because only the content of shadow counts.
        if await self.password_hash(user) != value:
            raise Terminal(f"chpasswd did not change the password of {user}", reason=Reason.PASSWORD_NOT_SET)

    async def lock(self, user: str) -> None:
        """Lock the password of a user. Does nothing if the user is missing."""
        value = await self.password_hash(user)
        if value is not None and locked(value) != value:
            await self.set_password_hash(user, locked(value))

    def _read(self, user: str) -> str | None:
        if (value := self._shadow(user, _PASSWORD)) is not None:
            return value
        # An account of the OS without a password may have no line, and allows no login with a password.
        return _NO_PASSWORD if self._owners.user(user) is not None else None

    def _shadow(self, user: str, field: int) -> str | None:
        """Return a field of the line of a user, None without a line."""
        for fields in colon_fields(Path(self._root) / "etc" / "shadow"):
            if fields[0] == user and len(fields) > field:
                return fields[field]
        return None

    def _sync(self) -> None:
        """Sync the directory. chpasswd syncs the new file only, before it renames it."""
        folder = str(Path(self._root) / "etc")
        with translated("sync", folder):
            sync_directory(folder)

    async def account(self, user: str) -> HostAccount | None:
        return await asyncio.to_thread(self._account, user)

    def _account(self, user: str) -> HostAccount | None:
        entry = self._owners.user(user)
        if entry is None:
            return None
        expired = entry.comment == _UNFINISHED or self._shadow(user, _EXPIRES) == _LONG_AGO
        return HostAccount(entry.uid, entry.home, expired, self._owners.memberships(user))

    async def problem(self, user: UserEntry) -> str:
        return await asyncio.to_thread(self._problem, user)

    def _problem(self, user: UserEntry) -> str:
        account, wanted = self._account(user.name), user.account
        if account is None or self._unfinished(user.name) is not None:
            problem = self._creation_problem(user)
        elif account.uid < FIRST_UID:
            problem = f"is an account of the system (uid {account.uid}), which nodeagent does not manage"
        elif wanted is not None and wanted.uid not in (None, account.uid):
            problem = f"has the uid {account.uid}, not {wanted.uid}, and the uid of an account never changes"
        elif _real_home(account.home) != _real_home(home_path(user.name, user.home)):
            problem = f"has the home {account.home}, which never changes: set homeDir to it"
        else:
            problem = ""
        # gpasswd changes /etc/group only, and the groups of the OS are in /usr/lib/group on ostree hosts.
        for group in user.groups:
            if not problem and not self._owners.local_group(group):
                problem = (
                    f"this host has no group {group} in /etc/group: a file in /etc/sysusers.d makes one (g); "
                    "copy the line of one that is in /usr/lib/group"
                )
        return problem

    def _creation_problem(self, user: UserEntry) -> str:
        assert user.account is not None
        other = self._owners.user(user.account.uid) if user.account.uid is not None else None
        if other is not None and other.name != user.name:
            return f"the uid {user.account.uid} is that of {other.name}"
        try:
            self._owners.gid(user.group or user.name)
        except Terminal as error:
            return error.message if user.group else ""
        # The group of an unfinished account is its own.
        own = user.group or self._unfinished(user.name) is not None
        return "" if own else f"there is a group {user.name} already: set primaryGroup to it"

    def _unfinished(self, user: str) -> PasswdEntry | None:
        """Return an account whose creation was killed, or failed."""
        entry = self._owners.user(user)
        return entry if entry is not None and entry.comment == _UNFINISHED else None

    async def create(self, user: UserEntry) -> None:
        wanted = user.account
        if wanted is None:
            return
        if (unfinished := await asyncio.to_thread(self._unfinished, user.name)) is not None:
            await self._discard(user, unfinished)
        elif await self.account(user.name) is not None:
            await self.reinstate(user.name)
            return
        home = home_path(user.name, user.home)
        # An account that a kill leaves half-way allows no login, and the next attempt finds its comment.
        options = ["--comment", _UNFINISHED, "--expiredate", _LONG_AGO, "--home-dir", home]
        options += ["--create-home" if wanted.create_home else "--no-create-home"]
        options += await asyncio.to_thread(self._numbers, user)
        options += ["--shell", wanted.shell] if wanted.shell else []
        options += ["--no-log-init"] if wanted.no_log_init else []
        # Its home gets the skeleton, its label and its owner from useradd, as one of an installer does.
        await self._change(user.name, "useradd", *options, user.name)
        if wanted.create_home:
            await asyncio.to_thread(_sync_home, self._path(home))
        await self._change(user.name, "usermod", "--comment", wanted.gecos, "--expiredate", "", user.name)
        # The result is read back, because only the content of passwd counts.
        account = await self.account(user.name)
        if account is None or account.expired:
            raise Terminal(f"useradd did not create {user.name}", reason=Reason.USER_NOT_CHANGED)

    def _numbers(self, user: UserEntry) -> list[str]:
        """Return the options of useradd about the uid and the primary group."""
        assert user.account is not None
        # userdel keeps the group of an unfinished account on hosts without USERGROUPS_ENAB.
        group = user.group or (user.name if self._owners.local_group(user.name) else "")
        options = ["--gid", group, "--no-user-group"] if group else ["--user-group"]
        uid = user.account.uid
        if uid is None and not user.home:
            # The home of an account of this name that was deleted. useradd would leave it to the old number.
            uid = self._owner_without_account(home_path(user.name))
        return options if uid is None else [*options, "--uid", str(uid)]

    def _owner_without_account(self, home: str) -> int | None:
        try:
            owner = self._path(home).lstat().st_uid
        except OSError:
            return None
        return owner if owner >= FIRST_UID and self._owners.user(owner) is None else None

    async def _discard(self, user: UserEntry, unfinished: PasswdEntry) -> None:
        """Delete an account that useradd did not finish. Its home stays, unless it is empty."""
        # useradd does not change the owner of a home that exists.
        with contextlib.suppress(OSError):
            await asyncio.to_thread(self._path(unfinished.home).rmdir)
        await self._change(user.name, "userdel", user.name)
        # With USERGROUPS_ENAB userdel deletes a group of that name, which the host had before if the config names it.
        if user.group == user.name and not await asyncio.to_thread(self._owners.local_group, user.group):
            await self._change(user.name, "groupadd", "--gid", str(unfinished.gid), user.group)

    def _path(self, path: str) -> Path:
        return Path(self._root) / path.lstrip("/")

    async def reinstate(self, user: str) -> None:
        account = await self.account(user)
        if account is not None and account.expired:
            await self._change(user, "usermod", "--expiredate", "", user)

    async def retire(self, user: str) -> None:
        # An unfinished account may have no line in shadow, where sshd without PAM reads the day. usermod makes one.
        expires = await asyncio.to_thread(self._shadow, user, _EXPIRES)
        if expires != _LONG_AGO and await self.account(user) is not None:
            await self._change(user, "usermod", "--expiredate", _LONG_AGO, user)

    async def set_member(self, user: str, group: str, *, member: bool) -> None:
        subject = f"{user} and the group {group}"
        await self._change(subject, "gpasswd", "--add" if member else "--delete", user, group)

    async def _change(self, subject: str, program: str, *arguments: str) -> None:
        """Run a tool of accounts, which takes their lock. ``subject`` is for the message."""
        status, output = await self._run(program, arguments)
        if status:
            message = f"{program} failed for {subject} (exit {status}): {output}"
            raise Terminal(message, reason=Reason.USER_NOT_CHANGED)
        await asyncio.to_thread(self._sync)

    async def _chpasswd(self, user: str, value: str) -> None:
        # The hash goes through a pipe, because arguments of a process are visible to all users.
        status, output = await self._run("chpasswd", ("--encrypted",), f"{user}:{value}\n".encode())
        if status:
            # The message must not contain the hash.
            output = output.replace(value, "...")
            raise Terminal(f"chpasswd failed for {user} (exit {status}): {output}", reason=Reason.PASSWORD_NOT_SET)

    async def _run(self, program: str, arguments: Sequence[str], stdin: bytes = b"") -> tuple[int, str]:
        """Return the exit status and the output."""
        root = () if self._root == "/" else ("--root", self._root)
        try:
            status, lines = await run_program(program, (*root, *arguments), Path("/"), self._deadline, stdin=stdin)
        except FileNotFoundError as error:
            raise Terminal(
                f"this host has no {program}; it comes with shadow-utils", reason=Reason.TOOL_MISSING
            ) from error
        except OSError as error:
            cause = error.strerror or type(error).__name__
            raise Terminal(f"{program} cannot be started: {cause}", reason=Reason.TOOL_MISSING) from error
        except ProgramLate as error:
            raise Retryable(
                f"{program} did not end within {self._deadline:g} s; another tool may hold the lock on the accounts",
                reason=Reason.TOOL_TIMED_OUT,
            ) from error
        return status, "\n".join(lines).strip()


def _real_home(path: str) -> str:
    # On ostree hosts /home is a link, and useradd of an image may name the same directory by either path.
    return path.removeprefix("/var")


def _sync_home(home: Path) -> None:
    """Sync a new home with the skeleton in it, which useradd does not."""
    with translated("sync", str(home)):
        with os.scandir(home) as entries:
            files = [entry.path for entry in entries if entry.is_file(follow_symlinks=False)]
        for path in files:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_directory(home)
        sync_directory(home.parent)
