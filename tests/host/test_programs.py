# SPDX-License-Identifier: Apache-2.0
"""The run of one program: its deadline holds whatever its children do, and a lack of processes is an outage."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import resource
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import pytest

import nodeagent
from nodeagent.core.config.machineconfig import FileEntry, MachineConfig
from nodeagent.core.plan.domain import ReloadProof
from nodeagent.errors import ServiceUnavailable
from nodeagent.host.checkers import HostValidator
from nodeagent.host.health import reload_problem
from nodeagent.host.ostree.programs import ostree_version
from nodeagent.host.programs import NotStarted, ProgramLate, run_program
from nodeagent.host.static_pods.running import Crictl
from nodeagent.host.users import HostUsers
from tests.support import examples

SHELL = "/bin/sh"
# Much longer than a test may take: the runs below end without waiting for it.
HOUR = "sleep 3600"


@pytest.mark.parametrize("script", [HOUR, f"{HOUR} & wait", f"{HOUR} & {HOUR}; true"], ids=["itself", "child", "both"])
async def test_the_children_of_a_late_program_are_killed_with_it(script: str, tmp_path: Path) -> None:
    with pytest.raises(ProgramLate):
        await run_program(SHELL, ["-c", f"echo $$ >pid; {script}"], tmp_path, 0.2)
    group = (tmp_path / "pid").read_text().strip()
    while group in _groups():  # a child whose parent has died is reaped by another process
        await asyncio.sleep(0.02)


async def test_a_cancelled_run_kills_the_children_as_well(tmp_path: Path) -> None:
    run = asyncio.create_task(
        run_program(SHELL, ["-c", f"{HOUR} & echo $$ >pid.new; mv pid.new pid; wait"], tmp_path, 60)
    )
    while not (tmp_path / "pid").exists():
        await asyncio.sleep(0.02)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    group = (tmp_path / "pid").read_text().strip()
    while group in _groups():
        await asyncio.sleep(0.02)


async def test_a_daemon_that_keeps_the_output_open_delays_only_to_the_deadline(tmp_path: Path) -> None:
    """It has left the session of the program, so it is not killed. The run ends without it."""
    with pytest.raises(ProgramLate):
        await run_program(SHELL, ["-c", "setsid sleep 4 & exit 0"], tmp_path, 0.2)


async def test_both_outputs_are_returned(tmp_path: Path) -> None:
    assert await run_program(SHELL, ["-c", "echo one; echo two >&2; exit 3"], tmp_path, 60) == (3, ["one", "two"])


def _groups() -> set[str]:
    """Return the process groups that have a process which has not ended."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if state != "Z":
            found.add(group)
    return found


# Each caller of a program, with what it needs to get so far.
async def _set_password(directory: Path) -> None:
    (directory / "etc").mkdir()
    (directory / "etc/shadow").write_text("core:!:1::::::\n")
    (directory / "etc/shadow").chmod(0o600)
    await HostUsers(str(directory)).set_password_hash("core", "$6$new$hash")


async def _check_sudoers(directory: Path) -> None:
    new = MachineConfig("new", files={"/etc/sudoers.d/x": FileEntry("/etc/sudoers.d/x", b"x")})
    await HostValidator(search_path=str(directory)).check(MachineConfig("old"), new)


async def _version_of_ostree(_directory: Path) -> None:
    await ostree_version()


async def _pods(directory: Path) -> None:
    await Crictl(search_path=str(directory)).runs("0123")


async def _reload(_directory: Path) -> None:
    await reload_problem(ReloadProof("app.service", "taken", "refused"), 0.0, "true")


CALLERS: Sequence[Callable[[Path], Awaitable[None]]] = (
    _set_password,
    _check_sudoers,
    _version_of_ostree,
    _pods,
    _reload,
    *examples.listed("PROGRAMS"),
)
LACKS = {
    "processes": BlockingIOError(errno.EAGAIN, "x"),
    "memory": OSError(errno.ENOMEM, "x"),
    "handles": OSError(errno.EMFILE, "x"),
    "handles of the host": OSError(errno.ENFILE, "x"),
    "threads": RuntimeError("can't start new thread"),
    "memory of Python": MemoryError(),
}


@pytest.mark.finding(
    "attack: programs that check a config", "A program that cannot be started is an outage that the update waits for."
)
@pytest.mark.parametrize("lack", LACKS)
@pytest.mark.parametrize("caller", CALLERS, ids=[caller.__name__.removeprefix("_") for caller in CALLERS])
async def test_a_host_that_starts_no_program_is_an_outage(
    caller: Callable[[Path], Awaitable[None]], lack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_options: object) -> NoReturn:
        raise LACKS[lack]

    for name in ("visudo", "crictl"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(ServiceUnavailable) as caught:
        await caller(tmp_path)
    assert caught.value.reason == "ProgramNotStarted"
    assert "hash" not in caught.value.message


@pytest.mark.finding(
    "attack: programs that check a config", "A program that cannot be started is an outage that the update waits for."
)
async def test_no_free_descriptor_is_an_outage(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), hard))
    taken = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        with pytest.raises(NotStarted, match="sh cannot be started: Too many open files"):
            await run_program(SHELL, ["-c", "true"], tmp_path, 60)
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert await run_program(SHELL, ["-c", "true"], tmp_path, 60) == (0, [])


async def test_a_program_that_is_missing_is_no_outage(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await run_program("/no/such/program", [], tmp_path, 60)


def test_no_other_module_starts_programs() -> None:
    """The first is the module of the daemon. The others are commands of their own, outside of an update."""
    listed = {"host/programs.py", "cli/logs.py", *examples.listed("STARTS_PROGRAMS")}
    package = Path(nodeagent.__file__).parent
    starts = re.compile(r"create_subprocess|import subprocess|os\.(?:fork|posix_spawn|system)\b")
    found = {str(path.relative_to(package)) for path in package.rglob("*.py") if starts.search(path.read_text("utf-8"))}
    assert found == listed
