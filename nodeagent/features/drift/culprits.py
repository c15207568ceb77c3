# SPDX-License-Identifier: Apache-2.0
"""Find out which program changed a path, from the audit log or from the command lines of processes.

Neither is certain to have an answer: the kernel audits a path only if a rule of the admin asks for it, and a program
that has ended is in no process table. inotify does not report processes, and fanotify reports them to programs with
CAP_SYS_ADMIN only, which nodeagent does not have.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from nodeagent.core.coordination.kube_time import parse_time
from nodeagent.host.proc import NO_LOGIN, login_of
from nodeagent.update.ports.host import Clock

# Bytes at the end of the audit log that are read. A busy host logs some MiB in an hour.
TAIL: Final = 512 << 10

# Seconds before now in which a record of the audit log counts.
RECENT: Final = 15.0

_RECORD: Final = re.compile(rb"^type=(SYSCALL|PATH) msg=audit\((\d+\.\d+):(\d+)\): (.*)$", re.MULTILINE)
_FIELD: Final = re.compile(rb'\b(pid|auid|comm|name|nametype)=("[^"]*"|[^\s"]+)')


class HostCulprits:
    """``audit_log`` is that of this host unless a test has its own."""

    def __init__(self, clock: Clock, audit_log: Path = Path("/var/log/audit/audit.log")) -> None:
        self._clock = clock
        self._audit_log = audit_log

    async def of(self, paths: Collection[str]) -> Mapping[str, str]:
        """Return a description of the program that changed each path just now, as far as it is known."""
        return await asyncio.to_thread(self._of, paths)

    def _of(self, paths: Collection[str]) -> dict[str, str]:
        programs = dict(self._in_processes(paths))
        if (now := parse_time(self._clock.now())) is not None:
            # The audit log is more reliable than a command line, so it comes last and replaces the programs from there.
            programs.update(audited(self._tail(), paths, since=now - RECENT, own=os.getpid()))
        return programs

    def _tail(self) -> bytes:
        try:
            with self._audit_log.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
                return file.read(TAIL)
        except OSError:
            return b""

    def _in_processes(self, paths: Collection[str]) -> Iterator[tuple[str, str]]:
        """Yield paths that are in the command line of a process, with a description of it."""
        for process in psutil.process_iter():
            if process.pid == os.getpid():
                continue
            # It has ended, or it is not visible.
            with suppress(psutil.Error, OSError):
                for word in process.cmdline():
                    # Also --output=/etc/x.
                    path = word if word in paths else word.partition("=")[2]
                    if path in paths:
                        yield path, described(process.name(), process.pid, login_of(process.pid))


def described(name: str, pid: int, login: int) -> str:
    """Return a process as text. ``login`` is the user id of the login that it descends from."""
    if login == NO_LOGIN:
        return f"{name}, pid {pid}"
    try:
        user = pwd.getpwuid(login).pw_name
    except KeyError:
        user = f"uid {login}"
    return f"{name}, pid {pid}, login {user}"


def audited(log: bytes, paths: Collection[str], *, since: float, own: int) -> dict[str, str]:
    """Return a description of the process of the last audit event of each path.

    Events before ``since``, in seconds since the epoch, and those of the process ``own`` do not count.
    """
    calls: dict[bytes, dict[bytes, bytes]] = {}
    processes: dict[str, str] = {}
    wanted = frozenset(paths)
    for kind, moment, serial, text in _RECORD.findall(log):
        if float(moment) < since:
            continue
        fields = dict(_FIELD.findall(text))
        if kind == b"SYSCALL":
            calls[serial] = fields
            continue
        path = _text(fields.get(b"name", b""))
        call = calls.get(serial, {})
        pid = int(call.get(b"pid", b"0"))
        if path in wanted and fields.get(b"nametype") != b"PARENT" and pid not in (0, own):
            login = int(call.get(b"auid", str(NO_LOGIN).encode()))
            processes[path] = described(_text(call.get(b"comm", b"?")), pid, login)
    return processes


def _text(value: bytes) -> str:
    """Return a value of the audit log: in quotes, or as hex digits if it contains a space or a quote."""
    if value.startswith(b'"'):
        return os.fsdecode(value.strip(b'"'))
    with suppress(ValueError):
        return os.fsdecode(bytes.fromhex(value.decode("ascii", "replace")))
    return os.fsdecode(value)
