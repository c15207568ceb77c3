# SPDX-License-Identifier: Apache-2.0
"""Translate an errno to an ``AgentError``.

The reasons are stable words. ``Terminal`` errors persist without a change (a full disk, a read-only mount, an attribute
of a file); ``Retryable`` errors may pass (a full table, a busy target).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from nodeagent.errors import AgentError, Retryable, Terminal
from nodeagent.reasons import Reason

_TERMINAL = {
    errno.ENOSPC: Reason.NO_SPACE,
    errno.EDQUOT: Reason.QUOTA_EXCEEDED,
    errno.EFBIG: Reason.FILE_TOO_LARGE,
    errno.EROFS: Reason.READ_ONLY,
    # root gets EPERM almost only from attributes (chattr +i, +a); a mode or an LSM returns EACCES.
    errno.EPERM: Reason.IMMUTABLE,
    errno.EACCES: Reason.PERMISSION_DENIED,
    errno.ENAMETOOLONG: Reason.NAME_TOO_LONG,
    errno.EIO: Reason.DISK_FAULT,
    errno.ELOOP: Reason.LINK_REFUSED,
    errno.ENOTDIR: Reason.NOT_A_DIRECTORY,
    errno.EISDIR: Reason.NOT_A_FILE,
}
_RETRYABLE = {
    errno.EAGAIN: Reason.BUSY,
    errno.EBUSY: Reason.BUSY,
    errno.EINTR: Reason.BUSY,
    errno.ETXTBSY: Reason.BUSY,
    errno.ESTALE: Reason.BUSY,
    # The path existed before.
    errno.ENOENT: Reason.PATH_CHANGED,
    errno.EEXIST: Reason.PATH_CHANGED,
    errno.ENOMEM: Reason.OUT_OF_MEMORY,
    errno.EMFILE: Reason.OUT_OF_HANDLES,
    errno.ENFILE: Reason.OUT_OF_HANDLES,
}
_HINTS = {
    Reason.NO_SPACE: "free space on that file system; nodeagent left no files there",
    Reason.READ_ONLY: "the file system is mounted read-only; a disk error does that too, see the kernel log",
    Reason.IMMUTABLE: "check the attributes of the path and of its directory with lsattr",
    Reason.PERMISSION_DENIED: "SELinux or a restriction of the service denied it; see the audit log",
}


def fault(error: OSError, doing: str, path: str) -> AgentError:
    """Return the error for an errno. The message is "cannot <doing> <path>: ..."."""
    code = error.errno or 0
    message = f"cannot {doing} {path}: {os.strerror(code) if code else type(error).__name__}"
    culprit = error.filename
    if isinstance(culprit, str) and culprit.startswith("/") and culprit != path:
        message += f" ({culprit})"
    if code in _RETRYABLE:
        return Retryable(message, reason=_RETRYABLE[code])
    reason = _TERMINAL.get(code, Reason.HOST_FAULT)
    return Terminal(message, reason=reason, hint=_HINTS.get(reason, ""))


@contextmanager
def translated(doing: str, path: str) -> Iterator[None]:
    """Raise ``OSError`` of the block as ``AgentError``."""
    try:
        yield
    except OSError as error:
        raise fault(error, doing, path) from error
