"""The run of one program: its deadline holds whatever its children do."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nodeagent.host.checkers.job import CheckerLate, run_program

SHELL = "/bin/sh"
# Much longer than a test may take: the runs below end without waiting for it.
HOUR = "sleep 3600"


@pytest.mark.parametrize("script", [HOUR, f"{HOUR} & wait", f"{HOUR} & {HOUR}; true"], ids=["itself", "child", "both"])
async def test_the_children_of_a_late_program_are_killed_with_it(script: str, tmp_path: Path) -> None:
    with pytest.raises(CheckerLate):
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
    with pytest.raises(CheckerLate):
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
