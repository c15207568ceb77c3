# SPDX-License-Identifier: Apache-2.0
"""The files on the page of the walkthrough are those that the code passes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nodeagent.cli.main import main
from tests.agent.whole_daemon import PATIENCE, WholeDaemon, source
from tests.support import removed
from tests.support.needs import acts_as_root
from tests.update.test_outcomes_on_the_bus import A, apply, host, private_bus
from tests.walkthrough.trace import passed_files
from tests.world.os_host import NEW, at_old

__all__ = ["host", "private_bus"]

PAGE = Path(__file__).parents[2] / "docs/development/walkthrough.md"
LISTED = (
    "cli/",
    "agent/api.py",
    "agent/loop.py",
    "update/",
    "core/config/",
    "core/plan/",
    "core/validate/",
    "domains/",
)
LEAVES = {"core/config/text/plain_json.py"}
"""Every part reads or writes JSON."""


def section(title: str) -> set[str]:
    (text,) = re.findall(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    files = set(re.findall(r"`([a-z_/]+\.py)`", text))
    return {file for file in files if not removed.is_path(f"nodeagent/{file}")}


def check(title: str, passed: Iterable[str], *, may_pass: Iterable[str] = ()) -> None:
    """``may_pass`` are files whose passing depends on timing."""
    listed, found, optional = section(title), set(passed), set(may_pass)
    assert listed - found - optional == set(), "listed, but not passed"
    assert {file for file in found if file.startswith(LISTED)} - listed - LEAVES - optional == set(), "not listed"


def test_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, content in (("a", "1"), ("b", "2")):
        (tmp_path / name).write_bytes(source(name, {"/etc/x": content}).text)
    with passed_files() as files:
        assert main(["plan", "--from", str(tmp_path / "a"), "--to", str(tmp_path / "b")]) == 0
    assert "/etc/x" in capsys.readouterr().out
    check("plan", files)


@acts_as_root
async def test_apply(host: WholeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    async with host.running() as client, asyncio.timeout(PATIENCE):
        # Until the first turn of the loop: the resumption before it is not a part of the path.
        while "no config is desired" not in capsys.readouterr().err:
            await asyncio.sleep(0.02)
        with passed_files() as files:
            # Only threads that start inside are recorded. The loop ends this pool when it closes.
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())
            done = await apply(client, A)
    assert done.outcome == "done"
    late = {"update/resume.py", "update/next/idle.py", "update/wait.py", "update/next/cancelling.py"}
    # Places of features: what passes them depends on which are installed.
    if removed.removed():
        late |= {"update/stages/guard.py", "update/stages/offer.py"}
    check("apply --wait", files, may_pass=late)


async def test_os_update() -> None:
    host = await at_old()
    with passed_files() as files:
        # The checks run in threads, as in the test above.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())
        host.want(NEW)
        await host.settle()
    assert host.world.history[-1].outcome == "done"
    check("OS update", files)
