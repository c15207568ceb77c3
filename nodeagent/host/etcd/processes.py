# SPDX-License-Identifier: Apache-2.0
"""Find the processes that may be the member of etcd on this host, by files of proc that every user can read.

No capability is needed. A process named etcd is assumed to be the member if anything else about it cannot be read: the
check fails closed. Only the names must be readable. Where proc hides the processes of other users (hidepid=), none is
found, and ``detect`` relies on the other signs. Two kinds of processes are not the member:
- A process with a network namespace of its own is a workload. Disruption budgets protect those.
- A process of another user than root in a login session (``user.slice``) was started by that user. If it counted, any
  user could block all updates of the host by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, TypeVar

import psutil

from nodeagent.host.proc import control_group_of, network_of

T = TypeVar("T")
D = TypeVar("D")

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
    with below(root):
        return sorted(_processes(root / "proc"), key=lambda member: member.pid)


@contextmanager
def below(root: Path) -> Iterator[None]:
    """Let psutil read the processes of another root, that of a test."""
    before = psutil.PROCFS_PATH
    psutil.PROCFS_PATH = str(root / "proc")
    try:
        yield
    finally:
        psutil.PROCFS_PATH = before


def _processes(proc: Path) -> Iterator[Process]:
    ours = network_of(1, proc)
    pids: Sequence[int] = _unless_denied(psutil.pids, [])
    for pid in pids:
        # The process has ended, or proc hides it (hidepid=). A zombie has no files and no network any more.
        with suppress(psutil.Error, OSError):
            process = psutil.Process(pid)
            argv: Sequence[str] = _unless_denied(process.cmdline, [])
            # psutil completes a name that the kernel has cut off by the one of the program.
            if NAME not in (process.name(), PurePosixPath(argv[0]).name if argv else ""):
                continue
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            # The real user. The owner of the directory is root for each process that is not dumpable.
            uids = _unless_denied(process.uids, None)
            member = Process(process.pid, argv, uids.real if uids is not None else None)
            network = network_of(process.pid, proc)
            of_a_workload = bool(ours and network) and network != ours
            of_a_session = bool(member.uid) and control_group_of(process.pid, proc).startswith("/user.slice/")
            if not of_a_workload and not of_a_session:
                yield member


def _unless_denied(read: Callable[[], T], otherwise: D) -> T | D:
    try:
        return read()
    except (psutil.AccessDenied, OSError):
        return otherwise
