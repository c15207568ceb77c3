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

__all__ = ["fault", "translated"]

_TERMINAL = {
    errno.ENOSPC: "NoSpace",
    errno.EDQUOT: "QuotaExceeded",
    errno.EFBIG: "FileTooLarge",
    errno.EROFS: "ReadOnly",
    # root gets EPERM almost only from attributes (chattr +i, +a); a mode or an LSM returns EACCES.
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
    errno.ENOENT: "PathChanged",  # the path existed before
    errno.EEXIST: "PathChanged",
    errno.ENOMEM: "OutOfMemory",
    errno.EMFILE: "OutOfHandles",
    errno.ENFILE: "OutOfHandles",
}
_HINTS = {
    "NoSpace": "free space on that file system; nodeagent left no files there",
    "ReadOnly": "the file system is mounted read-only; a disk error does that too, see the kernel log",
    "Immutable": "check the attributes of the path and of its directory with lsattr",
    "PermissionDenied": "SELinux or a restriction of the service denied it; see the audit log",
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
    reason = _TERMINAL.get(code, "HostFault")
    return Terminal(message, reason=reason, hint=_HINTS.get(reason, ""))


@contextmanager
def translated(doing: str, path: str) -> Iterator[None]:
    """Raise ``OSError`` of the block as ``AgentError``."""
    try:
        yield
    except OSError as error:
        raise fault(error, doing, path) from error
