# SPDX-License-Identifier: Apache-2.0
"""The files below /run by which other programs request or require a reboot.

Only root may have written them: a file that another user could have made is refused, and no link is followed to it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from nodeagent.errors import AgentError, Refused
from nodeagent.features.reboot_on_request.decide import MAX_TEXT, RebootRequirement
from nodeagent.features.reboot_on_request.reasons import RebootRequestReason
from nodeagent.host.fs.paths import open_parent

REQUIRED: Final = "/run/reboot-required"
PACKAGES: Final = f"{REQUIRED}.pkgs"

# Bytes that are read of a file, and names of packages that are shown.
MAX_BYTES: Final = 16384
MAX_PACKAGES: Final = 50


def read_request(path: str, *, root: str = "/") -> str | None:
    """Return the reason in the file, "" without one; None without the file. Raises ``Refused``."""
    content = _read(path, root)
    return None if content is None else _line(content)


def remove_request(path: str, *, root: str = "/") -> None:
    """Remove the file. Raises ``Refused`` (``RebootFileUnsafe``) where it stays."""
    with _refusing(path), open_parent(root, path) as parent:
        if not parent.missing:
            try:
                os.unlink(parent.name, dir_fd=parent.fd)
            except FileNotFoundError:
                return


def read_requirement(*, root: str = "/") -> RebootRequirement | None:
    """Return what /run/reboot-required says; None without the file. Raises ``Refused`` (``RebootFileUnsafe``)."""
    if _read(REQUIRED, root) is None:
        return None
    # A package that is named again for each update is one.
    lines = [line.strip() for line in (_read(PACKAGES, root) or "").splitlines()]
    names = dict.fromkeys(line[:100] for line in lines if line and line.isprintable())
    return RebootRequirement(tuple(names)[:MAX_PACKAGES])


def _line(content: str) -> str:
    first = next(iter(content.splitlines()), "").strip()[:MAX_TEXT]
    return first if first.isprintable() else ""


def _read(path: str, root: str) -> str | None:
    with _refusing(path), open_parent(root, path) as parent:
        if parent.missing:
            return None
        # Who may write the directory may replace the file.
        _check(os.fstat(parent.fd), f"the directory of {path}")
        try:
            # A pipe must not block, and a link may be one of another user.
            fd = os.open(parent.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent.fd)
        except FileNotFoundError:
            return None
        try:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode):
                raise _unsafe(f"{path} is no regular file")
            _check(info, path)
            return os.read(fd, MAX_BYTES).decode(errors="replace")
        finally:
            os.close(fd)


def _check(info: os.stat_result, what: str) -> None:
    # The user of the process counts as root, as in ``host.fs.paths``.
    if info.st_uid not in (0, os.geteuid()) or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _unsafe(f"users other than root can write {what}")


def _unsafe(message: str) -> Refused:
    return Refused(message, reason=RebootRequestReason.REBOOT_FILE_UNSAFE)


@contextmanager
def _refusing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _unsafe(f"{path}: {error.strerror}") from error
    except Refused:
        raise
    except AgentError as error:
        raise _unsafe(error.message) from error
