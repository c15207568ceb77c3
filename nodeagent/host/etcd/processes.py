"""Find the processes that may be the member of etcd on this host, by files of proc that every user can read.

No capability is needed. A process named etcd is assumed to be the member if anything else about it cannot be read: the
check fails closed. Only the names must be readable. Where proc hides the processes of other users (hidepid=), none is
found, and ``detect`` relies on the other signs. Two kinds of processes are not the member:
- A process with a network namespace of its own is a workload. Disruption budgets protect those.
- A process of another user than root in a login session (``user.slice``) was started by that user. If it counted, any
  user could block all updates of the host by its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

NAME: Final = "etcd"

# System users are below it, and in DYNAMIC_USERS (systemd, "Users, Groups, UIDs and GIDs on systemd systems").
SYSTEM_USERS: Final = 1000

DYNAMIC_USERS: Final = range(61184, 65520)


@dataclass(frozen=True, slots=True)
class Process:
    """``uid`` is None if it is unknown."""

    pid: int
    argv: Sequence[str] = ()
    uid: int | None = None

    @property
    def is_of_the_system(self) -> bool:
        """Whether root or a system user runs it. Only such a process may get a priority over others."""
        return self.uid is not None and (self.uid < SYSTEM_USERS or self.uid in DYNAMIC_USERS)


def processes(root: Path = Path("/")) -> list[Process]:
    """Return the processes, the lowest number first. Blocks: it reads files."""
    ours = _network(root / "proc/1")
    found = []
    for directory in root.glob("proc/[0-9]*"):
        # The process ended, the entry is no process, or proc hides it (hidepid=).
        with suppress(OSError, ValueError):
            argv = _argv(directory)
            name = (directory / "comm").read_text(errors="replace").strip()
            if NAME not in (name, PurePosixPath(argv[0]).name if argv else ""):
                continue
            status = _status(directory)
            # A zombie has no files and no network any more.
            if status.get("State", "").startswith("Z"):
                continue
            # The owner of the directory is root for each process that is not dumpable, so it is not the user.
            uid = status.get("Uid", "").split()
            process = Process(int(directory.name), argv, int(uid[0]) if uid else None)
            network = _network(directory)
            of_a_workload = bool(ours and network) and network != ours
            if not of_a_workload and not _of_a_session(directory, process.uid):
                found.append(process)
    return sorted(found, key=lambda process: process.pid)


def strings(path: Path) -> list[str]:
    """Return the strings of a file of proc, which end with NUL."""
    return [part.decode(errors="replace") for part in path.read_bytes().split(b"\0") if part]


def _argv(directory: Path) -> Sequence[str]:
    try:
        return strings(directory / "cmdline")
    except OSError:
        return ()


def _network(directory: Path) -> int:
    """Return a number that identifies the network namespace; 0 if it cannot be read.

    ``ns/net`` is readable only with permission to trace the process. The files of ``net`` are readable for every user,
    and each namespace has its own (fs/proc/proc_net.c).
    """
    try:
        return (directory / "net/dev").stat().st_ino
    except OSError:
        return 0


def _status(directory: Path) -> dict[str, str]:
    with suppress(OSError):
        lines = (directory / "status").read_text(errors="replace").splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {}


def _of_a_session(directory: Path, uid: int | None) -> bool:
    if not uid:
        return False
    with suppress(OSError, ValueError):
        for line in (directory / "cgroup").read_text(errors="replace").splitlines():
            hierarchy, _, path = line.split(":", 2)
            if (hierarchy == "0" or "name=systemd" in line) and path.startswith("/user.slice/"):
                return True
    return False
