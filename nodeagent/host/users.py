# SPDX-License-Identifier: Apache-2.0
"""Password hashes of local users: read from the shadow file, written by ``chpasswd`` of shadow-utils.

``chpasswd`` takes the lock of all account tools, keeps the other fields and the label of the file, and reads the hash
from its standard input, so that it appears in no process list. All supported hosts have shadow-utils; without it the
update fails instead of editing the file.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from nodeagent.errors import InvalidInput, Retryable, Terminal
from nodeagent.host.fs.atomic import sync_directory
from nodeagent.host.fs.os_errors import translated
from nodeagent.host.fs.owners import Owners, colon_fields
from nodeagent.host.programs import ProgramLate, run_program
from nodeagent.reasons import Reason

_NO_PASSWORD = "*"  # noqa: S105 - matches no password


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
        for fields in colon_fields(Path(self._root) / "etc" / "shadow"):
            if fields[0] == user and len(fields) > 1:
                return fields[1]
        # An account of the OS without a password may have no line, and allows no login with a password.
        return _NO_PASSWORD if self._owners.user(user) is not None else None

    def _sync(self) -> None:
        """Sync the directory. chpasswd syncs the new file only, before it renames it."""
        folder = str(Path(self._root) / "etc")
        with translated("sync", folder):
            sync_directory(folder)

    async def _chpasswd(self, user: str, value: str) -> None:
        root = () if self._root == "/" else ("--root", self._root)
        # The hash goes through a pipe, because arguments of a process are visible to all users.
        line = f"{user}:{value}\n".encode()
        try:
            status, lines = await run_program("chpasswd", ("--encrypted", *root), Path("/"), self._deadline, stdin=line)
        except FileNotFoundError as error:
            raise Terminal(
                "this host has no chpasswd; it comes with shadow-utils", reason=Reason.TOOL_MISSING
            ) from error
        except OSError as error:
            cause = error.strerror or type(error).__name__
            raise Terminal(f"chpasswd cannot be started: {cause}", reason=Reason.TOOL_MISSING) from error
        except ProgramLate as error:
            raise Retryable(
                f"chpasswd did not end within {self._deadline:g} s; another tool may hold the lock on the accounts",
                reason=Reason.TOOL_TIMED_OUT,
            ) from error
        if status:
            # The message must not contain the hash.
            output = "\n".join(lines).replace(value, "...").strip()
            raise Terminal(f"chpasswd failed for {user} (exit {status}): {output}", reason=Reason.PASSWORD_NOT_SET)
