# SPDX-License-Identifier: Apache-2.0
"""Validate the paths in a config, and name the paths of units and SSH keys.

A path is rejected if its file would not be persistent or writable on an immutable host, or if it belongs to the state
of nodeagent itself. The decision uses only the text of the path; no symbolic link is resolved.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Final

UNIT_DIR: Final = "/etc/systemd/system"
# PATH_MAX without its NUL.
MAX_PATH_BYTES: Final = 4095
# NAME_MAX.
MAX_NAME_BYTES: Final = 255
# File systems have no limit. Checks of all parents of all paths need one.
MAX_LEVELS: Final = 64
# Added to a name by an atomic write for its temporary file.
_SUFFIX_BYTES: Final = 16
_UNPRINTABLE: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})

_READ_ONLY: Final = "is on the read-only part of an immutable host"
_KERNEL: Final = "belongs to the kernel and is not a regular file"
_EMPTIED: Final = "is emptied at every boot, so that the file would be missing after one"
_OURS: Final = "is nodeagent's own and cannot be configured this way"
_STATE: Final = "is the record of what was applied and cannot be configured this way"
_FORCE: Final = "would switch off validation and force a reboot"

# A directory applies to itself and everything below it; the longest match counts.
_TREES: Final[dict[str, str | None]] = {
    "/proc": _KERNEL,
    "/sys": _KERNEL,
    "/dev": _KERNEL,
    "/run": _EMPTIED,
    "/var/run": _EMPTIED,
    "/var/lock": _EMPTIED,
    # A tmpfs, or emptied by systemd-tmpfiles.
    "/tmp": _EMPTIED,  # noqa: S108 - it is refused
    "/usr": _READ_ONLY,
    # On immutable hosts this is a link to /var/usrlocal, and in use for scripts.
    "/usr/local": None,
    "/bin": _READ_ONLY,
    "/sbin": _READ_ONLY,
    "/lib": _READ_ONLY,
    "/lib64": _READ_ONLY,
    "/sysroot": _READ_ONLY,
    "/ostree": _READ_ONLY,
    "/var/lib/nodeagent": _OURS,
    "/var/lib/nodeagent-fetched": _OURS,
    "/etc/nodeagent/machineconfig.yaml": _OURS,
    "/etc/machine-config-daemon/currentconfig": _STATE,
    "/etc/machine-config-daemon/currentimage": _STATE,
    "/etc/machine-config-daemon/orig": _STATE,
    "/etc/machine-config-daemon/noorig": _STATE,
    "/etc/machine-config-daemon-force": _FORCE,
    "/run/machine-config-daemon-force": _FORCE,
}


def has_control(text: str) -> bool:
    """Return whether ``text`` has a character that breaks a line, a terminal or a C string."""
    return not text.isprintable() and any(unicodedata.category(char) in _UNPRINTABLE for char in text)


def path_problem(path: str) -> str | None:
    """Return why ``path`` is not an absolute, normalised path of a file; None if it is one."""
    if not path.startswith("/"):
        return "must be an absolute path" if path else "must not be empty"
    if has_control(path):
        return "must not hold control characters"
    names = path[1:].split("/")
    if names == [""]:
        return "must not be the root directory"
    if "" in names:
        return "must not end with a slash" if names.index("") == len(names) - 1 else "must not hold //"
    if "." in names or ".." in names:
        return "must not hold . or .. as a name"
    if len(names) > MAX_LEVELS:
        return f"must not be deeper than {MAX_LEVELS} levels"
    size = len(path.encode())
    if size > MAX_PATH_BYTES - _SUFFIX_BYTES:
        return f"must not be longer than {MAX_PATH_BYTES - _SUFFIX_BYTES} bytes"
    if size > MAX_NAME_BYTES and any(len(name.encode()) > MAX_NAME_BYTES for name in names):
        return f"must not hold a name of more than {MAX_NAME_BYTES} bytes"
    return None


def managed_path_problem(path: str) -> str | None:
    """Return why nodeagent must not write to ``path``; None if it may."""
    problem = path_problem(path)
    if problem is not None:
        return problem
    return _TREES[path] if path in _TREES else _tree_problem(path.rpartition("/")[0])


# Thousands of files share a few directories.
@lru_cache(maxsize=1024)
def _tree_problem(directory: str) -> str | None:
    while directory:
        if directory in _TREES:
            return _TREES[directory]
        directory = directory.rpartition("/")[0]
    return None


def unit_path(name: str) -> str:
    return f"{UNIT_DIR}/{name}"


def dropin_path(unit: str, dropin: str) -> str:
    return f"{UNIT_DIR}/{unit}.d/{dropin}"


def home_path(user: str, home: str = "") -> str:
    """Return the home directory of a user, which ``home`` names if it is not the usual one."""
    return home or f"/home/{user}"


def ssh_keys_path(user: str, home: str = "") -> str:
    """The file that sshd of RHCOS and FCOS reads besides ``authorized_keys``; Ignition and the MCD use it too."""
    return f"{home_path(user, home)}/.ssh/authorized_keys.d/ignition"
