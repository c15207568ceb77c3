# SPDX-License-Identifier: Apache-2.0
"""What the kernel reports about a process and psutil does not: login, network, control group, label, replaced files.

All functions block for small files of /proc. What cannot be read is unknown, unless they raise ``OSError``.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")

# The kernel's value for a process that descends from no login.
NO_LOGIN: Final = 2**32 - 1

_DELETED: Final = " (deleted)"
_MAX_MAPS: Final = 4 << 20
_MAX_LABEL: Final = 4096


def login_of(pid: int, proc: Path = PROC) -> int:
    """Return the user id of the login that the process descends from, ``NO_LOGIN`` without one."""
    with suppress(OSError, ValueError):
        return int((proc / str(pid) / "loginuid").read_text())
    return NO_LOGIN


def network_of(pid: int, proc: Path = PROC) -> int:
    """Return a number that identifies the network namespace of the process; 0 if it cannot be read.

    ``ns/net`` is readable only with permission to trace the process. The files of ``net`` are readable for every user,
    and each namespace has its own (fs/proc/proc_net.c).
    """
    try:
        return (proc / str(pid) / "net/dev").stat().st_ino
    except OSError:
        return 0


def control_group_of(pid: int, proc: Path = PROC) -> str:
    """Return the path of the process in systemd's hierarchy, "" if it is unknown."""
    paths = {}
    with suppress(OSError, ValueError):
        for line in (proc / str(pid) / "cgroup").read_text(errors="replace").splitlines():
            hierarchy, controllers, path = line.split(":", 2)
            paths["" if hierarchy == "0" else controllers] = path
    # The kernel lists the hierarchy that systemd does not use as well, with each process at its root.
    unified, legacy = paths.get("", ""), paths.get("name=systemd", "")
    return unified if unified not in ("", "/") else legacy or unified


def label_of(pid: int, proc: Path = PROC) -> str:
    """Return the security label. Raises ``OSError``."""
    with (proc / str(pid) / "attr/current").open("rb") as file:
        return file.read(_MAX_LABEL).rstrip(b"\0\n").decode(errors="replace")


def start_of(pid: int, proc: Path = PROC) -> tuple[int, float] | None:
    """Return the start in ticks since the boot, and in seconds since the epoch; None if it is unknown.

    psutil counts from the boot in whole seconds, which is too coarse for a comparison with times of files.
    """
    with suppress(OSError, ValueError, IndexError):
        # Field 22 of proc_pid_stat(5); the name of the program may have blanks and parentheses.
        ticks = int((proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[19])
        boot = time.clock_gettime(time.CLOCK_REALTIME) - time.clock_gettime(time.CLOCK_BOOTTIME)
        return ticks, boot + ticks / os.sysconf("SC_CLK_TCK")
    return None


def replaced_file_of(pid: int, below: str, proc: Path = PROC) -> str:
    """Return a file below a path that the process uses and that was replaced since, "" if none is known.

    psutil drops the mark of the kernel for such a file.
    """
    try:
        with (proc / str(pid) / "maps").open("rb") as file:
            lines = file.read(_MAX_MAPS).decode(errors="replace").splitlines()
    except OSError:
        # It belongs to another user, or it has ended.
        return ""
    for line in lines:
        path = f"/{line.partition('/')[2]}"
        if line.endswith(_DELETED) and path.startswith(below):
            return path.removesuffix(_DELETED)
    return ""
