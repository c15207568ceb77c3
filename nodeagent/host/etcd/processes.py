"""The processes that may be this host's member of etcd, found with what every user may read in proc.

Contract: needs no capability. What cannot be found out about a process named etcd counts against it: it is taken for
the member (the guard fails closed). Only the names have to be readable: where proc hides the processes of others
(hidepid=), none is found, and the other signs have to do. Two kinds are certainly not the member:
- A process with a network of its own is a workload, which is what disruption budgets are for.
- A process of another user than root in a login session (``user.slice``) is started by that user. If it counted, any
  user could block all updates of the host by its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

__all__ = ["Process", "processes", "strings"]

NAME: Final = "etcd"
SYSTEM_USERS: Final = 1000
"""Users below are of the system; DYNAMIC_USERS, too (systemd, "Users, Groups, UIDs and GIDs on systemd systems")."""

DYNAMIC_USERS: Final = range(61184, 65520)


@dataclass(frozen=True, slots=True)
class Process:
    """``uid`` is None where it is not known."""

    pid: int
    argv: Sequence[str] = ()
    uid: int | None = None

    @property
    def is_of_the_system(self) -> bool:
        """Root's, or of a user of the system: what may get priority over others."""
        return self.uid is not None and (self.uid < SYSTEM_USERS or self.uid in DYNAMIC_USERS)


def processes(root: Path = Path("/")) -> list[Process]:
    """The oldest number first. Blocks: it reads files."""
    ours = _network(root / "proc/1")
    found = []
    for directory in root.glob("proc/[0-9]*"):
        # It ended, is no process, or is hidden from us with all others (proc mounted with hidepid=).
        with suppress(OSError, ValueError):
            argv = _argv(directory)
            name = (directory / "comm").read_text(errors="replace").strip()
            if NAME not in (name, PurePosixPath(argv[0]).name if argv else ""):
                continue
            status = _status(directory)
            if status.get("State", "").startswith("Z"):  # it ended, and has no files and no network any more
                continue
            # The real user. Not the owner of the directory, which is root for each process that is not dumpable.
            uid = status.get("Uid", "").split()
            process = Process(int(directory.name), argv, int(uid[0]) if uid else None)
            network = _network(directory)
            of_a_workload = bool(ours and network) and network != ours
            if not of_a_workload and not _of_a_session(directory, process.uid):
                found.append(process)
    return sorted(found, key=lambda process: process.pid)


def strings(path: Path) -> list[str]:
    """What proc has as strings that end with NUL."""
    return [part.decode(errors="replace") for part in path.read_bytes().split(b"\0") if part]


def _argv(directory: Path) -> Sequence[str]:
    try:
        return strings(directory / "cmdline")
    except OSError:
        return ()


def _network(directory: Path) -> int:
    """Of the network namespace, as a number; 0 if it cannot be read. ``ns/net`` is only for who may trace the process;
    the files of ``net`` are for everybody, and each namespace has its own of them (fs/proc/proc_net.c)."""
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
