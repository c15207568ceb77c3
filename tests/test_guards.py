# SPDX-License-Identifier: Apache-2.0
"""The guards themselves: a guard that cannot fail guards nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"
CONFTEST = (Path(__file__).parent / "support/guards.py").read_text()

LEAKED_TASK = """
import asyncio
async def test_it():
    globals()["task"] = asyncio.create_task(asyncio.sleep(60))
"""
LEAKED_CHILD = """
import subprocess
def test_it():
    globals()["child"] = subprocess.Popen(["sleep", "2"])
"""
# As if a module of ours did it: the guard looks at the file name of the caller.
BLOCKING_CALL = """
import pathlib, time
import nodeagent
napping = pathlib.Path(nodeagent.__file__).with_name("napping.py")
space = {"time": time}
exec(compile("async def nap(): time.sleep(0.01)", str(napping), "exec"), space)
async def test_it():
    await space["nap"]()
"""
CLEAN = """
import asyncio
async def test_it():
    await asyncio.sleep(0)
"""


def test_each_guard_finds_its_own(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run all of them in one pytest, whose start takes longer than all the rest."""
    monkeypatch.setenv("COLUMNS", "250")  # the summary is cut to the width of the terminal
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_task=LEAKED_TASK, test_child=LEAKED_CHILD, test_blocking=BLOCKING_CALL, test_clean=CLEAN)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-c", str(PYPROJECT))
    result.assert_outcomes(passed=3, failed=1, errors=2)  # what is left behind is found after a test that passed
    for line in (
        "ERROR *test_task.py::test_it - *tasks left behind*",
        "ERROR *test_child.py::test_it - *children left behind*",
        "FAILED *test_blocking.py::test_it - *Blocking call to time.sleep*",
    ):
        result.stdout.fnmatch_lines_random(line)
