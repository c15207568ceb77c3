"""The guards themselves: a guard that cannot fail guards nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"
CONFTEST = Path(__file__).with_name("conftest.py").read_text()

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


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (LEAKED_TASK, "tasks left behind"),
        (LEAKED_CHILD, "children left behind"),
        (BLOCKING_CALL, "Blocking call to time.sleep"),
        (CLEAN, "1 passed"),
    ],
    ids=["task", "child", "blocking", "clean"],
)
def test_guard(pytester: pytest.Pytester, body: str, says: str) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(body)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-c", str(PYPROJECT))
    assert says in result.stdout.str()
