# SPDX-License-Identifier: Apache-2.0
"""SELinux labels of written files. Without SELinux, these functions do nothing.

Labels are written to the ``security.selinux`` attribute. libselinux, if the host has it, returns the label that the
policy assigns to a path. It is loaded at run time, because most test hosts lack it.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from nodeagent.host.c_library import c_library

_ATTRIBUTE = "security.selinux"
_LIBRARY = "libselinux.so.1"
# SELABEL_CTX_FILE.
_CTX_FILE = 0

PolicyLookup = Callable[[str, int], str | None]


class _Library:
    """The label database of libselinux: opened once (10 ms), with a lock for versions without thread safety."""

    def __init__(self) -> None:
        # Loaded only on hosts with SELinux. First, because it has the error of an import that fails.
        library = c_library(_LIBRARY)
        import ctypes

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
        library.is_context_customizable.argtypes = [ctypes.c_char_p]
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

    def is_customizable(self, label: str) -> bool:
        with self._lock:
            return int(self._library.is_context_customizable(label.encode())) == 1


_library: _Library | None = None
_library_lock = threading.Lock()


def policy_label(path: str, mode: int) -> str | None:
    """Return the label that the policy assigns to a path of this type (``st_mode``), None if it is unavailable."""
    library = _loaded()
    return None if library is None else library.lookup(path, mode)


def is_customizable(label: str) -> bool:
    """Return whether the policy lets an admin choose this type for any path (``customizable_types``)."""
    library = _loaded()
    return library is not None and library.is_customizable(label)


def label_type(label: str) -> str:
    """Return the type of a label, "" if it has none."""
    parts = label.split(":")
    return parts[2] if len(parts) > 2 else ""


def _loaded() -> _Library | None:
    global _library
    with _library_lock:
        if _library is None:
            try:
                _library = _Library()
            # New files then keep the label of the kernel, which is that of the directory or of a rule of the policy.
            except (OSError, ImportError, AttributeError):
                return None
        return _library


class Labels:
    """Reads and writes labels through file descriptors."""

    def __init__(
        self,
        enabled: bool | None = None,
        policy: PolicyLookup = policy_label,
        customizable: Callable[[str], bool] = is_customizable,
    ) -> None:
        self._enabled = enabled
        self._policy = policy
        self._customizable = customizable

    @cached_property
    def enabled(self) -> bool:
        """Whether SELinux is enabled. Read once, at the first use, which is in a thread."""
        return Path("/sys/fs/selinux/enforce").exists() if self._enabled is None else self._enabled

    def read(self, fd: int) -> str | None:
        """Return the label of a file descriptor, also of an ``O_PATH`` one, which symlinks need."""
        if not self.enabled:
            return None
        try:
            # Through /proc, because fgetxattr(2) refuses a descriptor of O_PATH.
            raw = os.getxattr(f"/proc/self/fd/{fd}", _ATTRIBUTE)
        except OSError as error:
            if error.errno in (errno.ENODATA, errno.ENOTSUP):
                return None
            raise
        return raw.rstrip(b"\0").decode()

    def write(self, fd: int, path: str, mode: int, *, wanted: str | None, replaced: str | None) -> None:
        """Write the wanted label or, as restorecon(8), that of the policy."""
        if not self.enabled:
            return
        label = wanted or self._chosen(path, mode, replaced)
        if label is None:
            return
        try:
            os.setxattr(f"/proc/self/fd/{fd}", _ATTRIBUTE, label.encode() + b"\0")
        except OSError as error:
            # A file system without labels (the EFI partition) is an error only if the label was requested.
            if error.errno != errno.ENOTSUP or wanted is not None:
                raise

    def write_new(self, fd: int, path: str, mode: int) -> None:
        """Write the label of the policy for a file that the agent makes for itself or for other programs."""
        self.write(fd, path, stat.S_IFREG | mode, wanted=None, replaced=None)

    def _chosen(self, path: str, mode: int, replaced: str | None) -> str | None:
        """Keep the label of the replaced file if the policy has none, or if only user or categories differ, or if an
        admin may choose its type."""
        policy = self._policy(path, mode)
        if replaced is None or policy is None:
            return policy or replaced
        return replaced if label_type(replaced) == label_type(policy) or self._customizable(replaced) else policy
