"""What a failing system call means: the one place where an errno becomes one of our errors.

The reasons are stable words. ``Terminal`` is what does not pass by itself (a full disk, a read-only mount, an
attribute somebody set); ``Retryable`` what does (a table that is full for a moment, a busy target).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from nodeagent.errors import AgentError, Retryable, Terminal

__all__ = ["fault", "translated"]

_TERMINAL = {
    errno.ENOSPC: "NoSpace",
    errno.EDQUOT: "QuotaExceeded",
    errno.EFBIG: "FileTooLarge",
    errno.EROFS: "ReadOnly",
    # Root is told EPERM by attributes (chattr +i, +a) and hardly anything else; a mode or an LSM says EACCES.
    errno.EPERM: "Immutable",
    errno.EACCES: "PermissionDenied",
    errno.ENAMETOOLONG: "NameTooLong",
    errno.EIO: "DiskFault",
    errno.ELOOP: "LinkRefused",
    errno.ENOTDIR: "NotADirectory",
    errno.EISDIR: "NotAFile",
}
_RETRYABLE = {
    errno.EAGAIN: "Busy",
    errno.EBUSY: "Busy",
    errno.EINTR: "Busy",
    errno.ETXTBSY: "Busy",
    errno.ESTALE: "Busy",
    errno.ENOENT: "PathChanged",  # we saw it a moment ago
    errno.EEXIST: "PathChanged",
    errno.ENOMEM: "OutOfMemory",
    errno.EMFILE: "OutOfHandles",
    errno.ENFILE: "OutOfHandles",
}
_HINTS = {
    "NoSpace": "free some space on that file system; nothing of ours was left there",
    "ReadOnly": "the file system is mounted read-only; a disk error does that too, see the kernel log",
    "Immutable": "look at the attributes of the path and of its directory with lsattr",
    "PermissionDenied": "SELinux or a restriction of the service denied it; see the audit log",
}


def fault(error: OSError, doing: str, path: str) -> AgentError:
    """``doing`` is a verb phrase, as in "cannot <doing> <path>"."""
    code = error.errno or 0
    message = f"cannot {doing} {path}: {os.strerror(code) if code else type(error).__name__}"
    culprit = error.filename
    if isinstance(culprit, str) and culprit.startswith("/") and culprit != path:
        message += f" ({culprit})"
    if code in _RETRYABLE:
        return Retryable(message, reason=_RETRYABLE[code])
    reason = _TERMINAL.get(code, "HostFault")
    return Terminal(message, reason=reason, hint=_HINTS.get(reason, ""))


@contextmanager
def translated(doing: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise fault(error, doing, path) from error
