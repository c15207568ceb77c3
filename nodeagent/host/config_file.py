# SPDX-License-Identifier: Apache-2.0
"""Files of this host that root writes for the agent, such as the desired config: bounded reads, and watches."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from nodeagent.errors import InvalidInput, Terminal
from nodeagent.host.inotify import CHANGED, CREATED, GONE, OVERFLOW, Watch
from nodeagent.reasons import Reason

# Twenty times the largest rendered MachineConfig that an API server accepts.
MAX_BYTES = 32 * 1024 * 1024

# Endings of a file with a config. A name without one is that of a directory.
FILES = (".yaml", ".yml", ".json", ".ign")

# Seconds from a change to its report, because editors write in several steps.
SETTLE = 0.2

# Seconds between polls if the directory cannot be watched.
NO_WATCH_POLL = 30.0


def names_directory(path: str) -> bool:
    """Return whether ``path`` is a directory of MachineConfigs. Where there is nothing, its name decides. Blocks."""
    if os.path.lexists(path):
        return os.path.isdir(path)  # noqa: PTH112 - without an error for a user who cannot look there
    return path.endswith("/") or Path(path).suffix not in FILES


def desired_file(path: str, state_dir: str) -> str:
    """Return the file of the desired config. A directory at ``path`` gives what is written to it. Blocks."""
    return str(Path(state_dir, "desired.json")) if names_directory(path) else path


async def read(path: str) -> bytes | None:
    """Return the content, None without a file. Raises ``InvalidInput`` if users other than root can write it."""
    return await asyncio.to_thread(read_now, path)


def read_now(path: str, limit: int = MAX_BYTES) -> bytes | None:
    """As ``read``, for a program without a loop. Blocks. ``limit`` is the largest size in bytes."""
    try:
        # Without O_NONBLOCK, a pipe without a writer would block this thread without end.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise InvalidInput(f"{path} is a link", reason=Reason.UNSAFE_CONFIG) from error
        raise Terminal(f"{path}: {error.strerror}", reason=Reason.CONFIG_UNREADABLE) from error
    try:
        _refuse_unsafe(path, os.fstat(fd), limit)
        # After the check, because a directory cannot become a file object.
        with os.fdopen(fd, "rb", closefd=False) as file:
            # One byte more than the limit, so that the parser refuses a file that grew after the check.
            return file.read(limit + 1)
    except OSError as error:
        raise Terminal(f"{path}: {error.strerror}", reason=Reason.CONFIG_UNREADABLE) from error
    finally:
        os.close(fd)


def _refuse_unsafe(path: str, info: os.stat_result, limit: int) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise InvalidInput(f"{path} is not a regular file", reason=Reason.UNSAFE_CONFIG)
    _refuse_writable(path, info)
    if info.st_size > limit:
        raise InvalidInput(f"{path} has {info.st_size} bytes, more than {limit}", reason=Reason.TOO_LARGE)


def _refuse_writable(path: str, info: os.stat_result) -> None:
    if info.st_uid not in (0, os.geteuid()) or info.st_mode & 0o022:
        raise InvalidInput(f"{path} is writable for users other than root", reason=Reason.UNSAFE_CONFIG)


def names_in(directory: str) -> list[str]:
    """Return the names of the entries, [] without a directory. Blocks.

    Raises ``InvalidInput`` if it is a link, or users other than root can write to it and replace its files.
    """
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY)
    except FileNotFoundError:
        return []
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise InvalidInput(f"{directory} is not a directory", reason=Reason.UNSAFE_CONFIG) from error
        raise Terminal(f"{directory}: {error.strerror}", reason=Reason.CONFIG_UNREADABLE) from error
    try:
        _refuse_writable(directory, os.fstat(fd))
        return os.listdir(fd)  # noqa: PTH208 - of the descriptor that was checked
    except OSError as error:
        raise Terminal(f"{directory}: {error.strerror}", reason=Reason.CONFIG_UNREADABLE) from error
    finally:
        os.close(fd)


async def watch(path: str, changed: Callable[[], None]) -> None:
    """Call ``changed`` after each change of the file, also its creation, replacement and removal. Never returns."""
    directory, name = os.path.split(path)
    await watch_directory(directory, lambda entry: entry == name, changed)


async def watch_directory(path: str, wanted: Callable[[str], bool], changed: Callable[[], None]) -> None:
    """Call ``changed`` after each change of a file in the directory whose name is ``wanted``. Never returns."""
    while True:
        try:
            with Watch(path) as entries:
                # It may have changed before the watch began.
                changed()
                while await _wait_for_change(entries, wanted):
                    await asyncio.sleep(SETTLE)
                    changed()
            # The directory is gone, and its files with it.
            changed()
        except FileNotFoundError:
            await _wait_until_made(Path(path))
        except OSError:
            # It is no directory, or no inotify instance is free: poll instead.
            changed()
            await asyncio.sleep(NO_WATCH_POLL)


async def _wait_until_made(directory: Path) -> None:
    """Wait until something is made at this path, or at the first of its parents that is missing.

    A directory that is never made costs no wake-ups.
    """
    while not await asyncio.to_thread(directory.parent.exists):
        directory = directory.parent
    try:
        with Watch(str(directory.parent), CREATED | CHANGED) as entries:
            # It may have been made before the watch began.
            if not await asyncio.to_thread(directory.exists):
                await _wait_for_change(entries, lambda name: name == directory.name)
    except OSError:
        await asyncio.sleep(NO_WATCH_POLL)


async def _wait_for_change(entries: Watch, wanted: Callable[[str], bool]) -> bool:
    """Wait for a change of an entry whose name is ``wanted``. Returns False if the directory is gone."""
    while True:
        await entries.readable()
        seen = list(entries.read())
        if any(mask & GONE for mask, _name in seen):
            return False
        if any(mask & OVERFLOW or wanted(changed) for mask, changed in seen):
            return True
