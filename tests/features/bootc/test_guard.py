# SPDX-License-Identifier: Apache-2.0
"""What others leave for the next reboot of a host."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodeagent.agent.report.report import Report
from nodeagent.features.bootc.guard import OthersGuard
from nodeagent.report.status import Status

OF_BOOTC = "bootc: Reboot required for image: sha256:1234"
OF_DEBIAN = "*** System restart required ***\n"


@pytest.fixture
def report() -> Report:
    return Report(Status())


@pytest.fixture
def guard(report: Report, tmp_path: Path) -> OthersGuard:
    (tmp_path / "run").mkdir()
    return OthersGuard(report, tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (OF_BOOTC, "bootc wrote /run/reboot-required: Reboot required for image: sha256:1234"),
        (OF_DEBIAN, "another program wrote /run/reboot-required: *** System restart required ***"),
        ("", "another program wrote /run/reboot-required"),
        ("x" * 5000, "another program wrote /run/reboot-required"),
    ],
)
async def test_who_asks_for_a_reboot(
    guard: OthersGuard, report: Report, tmp_path: Path, text: str, message: str
) -> None:
    await guard.check()
    assert report.status.problems == ()
    file = tmp_path / "run/reboot-required"
    file.write_text(text)
    await guard.check()
    (problem,) = report.status.problems
    assert (problem.reason, problem.message) == ("RebootAnnounced", message)
    file.unlink()
    await guard.check()
    assert report.status.problems == ()


async def test_the_file_is_watched(guard: OthersGuard, report: Report, tmp_path: Path) -> None:
    ((_, watch),) = guard.beside
    task = asyncio.create_task(watch())
    try:
        for present in (True, False):
            file = tmp_path / "run/reboot-required"
            await asyncio.to_thread(file.write_text, OF_BOOTC) if present else await asyncio.to_thread(file.unlink)
            async with asyncio.timeout(20):
                while bool(report.status.problems) is not present:
                    await asyncio.sleep(0.02)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("note", ["unlocked-development", "unlocked-transient"])
async def test_a_usr_that_the_reboot_takes_back(guard: OthersGuard, tmp_path: Path, note: str) -> None:
    reboots: Any = SimpleNamespace(reboots=True)
    states = tmp_path / "run/ostree/deployment-state/1234.0"
    states.mkdir(parents=True)
    (states / "rpmostree-is-live.stamp").touch()
    assert await guard.planned(reboots, stops_node=False) == ()
    (states / note).touch()
    (words,) = await guard.planned(reboots, stops_node=False)
    assert "/usr" in words
    without: Any = SimpleNamespace(reboots=False)
    assert await guard.planned(without, stops_node=False) == ()
