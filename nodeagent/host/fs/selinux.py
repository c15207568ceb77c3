"""SELinux labels of written files. Without SELinux, these functions do nothing.

Labels are written to the ``security.selinux`` attribute. libselinux, if the host has it, returns the label that the
policy assigns to a path. It is loaded at run time, because most test hosts lack it.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

__all__ = ["Labels", "policy_label"]

_ATTRIBUTE = "security.selinux"
_LIBRARY = "libselinux.so.1"
# SELABEL_CTX_FILE.
_CTX_FILE = 0

PolicyLookup = Callable[[str, int], str | None]


class _Library:
    """The label database of libselinux: opened once (10 ms), with a lock for versions without thread safety."""

    def __init__(self) -> None:
        # Loaded only on hosts with SELinux.
        import ctypes

        library = ctypes.CDLL(_LIBRARY, use_errno=True)
        library.selabel_open.restype = ctypes.c_void_p
        library.selabel_open.argtypes = [ctypes.c_uint, ctypes.c_void_p, ctypes.c_uint]
        library.selabel_lookup_raw.argtypes = [
            ctypes.c_void_p,
            ctypes.POINTER(ctypes.c_char_p),
            ctypes.c_char_p,
            ctypes.c_int,
        ]
        library.freecon.argtypes = [ctypes.c_char_p]
        library.freecon.restype = None
        self._handle = library.selabel_open(_CTX_FILE, None, 0)
        if not self._handle:
            raise OSError(ctypes.get_errno(), "selabel_open")
        self._library = library
        self._context_type = ctypes.c_char_p
        self._byref = ctypes.byref
        self._lock = threading.Lock()

    def lookup(self, path: str, mode: int) -> str | None:
        context = self._context_type()
        with self._lock:
            if self._library.selabel_lookup_raw(self._handle, self._byref(context), os.fsencode(path), mode) != 0:
                # <<none>> in the policy, or no rule: the label is inherited.
                return None
        label = context.value
        self._library.freecon(context)
        return label.decode() if label else None


_library: _Library | None = None
_library_lock = threading.Lock()


def policy_label(path: str, mode: int) -> str | None:
    """Return the label that the policy assigns to a path of this type (``st_mode``), None if it is unavailable."""
    global _library
    with _library_lock:
        if _library is None:
            try:
                _library = _Library()
            except (OSError, ImportError, AttributeError):
                return None
    return _library.lookup(path, mode)


class Labels:
    """Reads and writes labels through file descriptors."""

    def __init__(self, enabled: bool | None = None, policy: PolicyLookup = policy_label) -> None:
        self._enabled = enabled
        self._policy = policy

    @cached_property
    def enabled(self) -> bool:
        """Whether SELinux is enabled. Read once, at the first use, which is in a thread."""
        return Path("/sys/fs/selinux/enforce").exists() if self._enabled is None else self._enabled

    def read(self, fd: int) -> str | None:
        """Return the label of a file descriptor, also of an ``O_PATH`` one, which symlinks need."""
        if not self.enabled:
            return None
        try:
            raw = os.getxattr(f"/proc/self/fd/{fd}", _ATTRIBUTE)
        except OSError as error:
            if error.errno in (errno.ENODATA, errno.ENOTSUP):
                return None
            raise
        return raw.rstrip(b"\0").decode()

    def write(self, fd: int, path: str, mode: int, *, wanted: str | None, replaced: str | None) -> None:
        """Write the first known label: the wanted one, that of the replaced file, that of the policy."""
        label = wanted or replaced or (self._policy(path, mode) if self.enabled else None)
        if not self.enabled or label is None:
            return
        try:
            os.setxattr(f"/proc/self/fd/{fd}", _ATTRIBUTE, label.encode() + b"\0")
        except OSError as error:
            # A file system without labels (the EFI partition) is an error only if the label was requested.
            if error.errno != errno.ENOTSUP or wanted is not None:
                raise
