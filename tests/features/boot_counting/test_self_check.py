# SPDX-License-Identifier: Apache-2.0
"""What the check of an installation says about the boots of a new OS."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.core.self_check import NotRead
from nodeagent.features.boot_counting import self_check
from nodeagent.features.boot_counting.decide import BootCounting, CountedBy
from nodeagent.features.boot_counting.self_check import boot_check, read_counting
from nodeagent.features.boot_counting.settings import BootCountingSettings

NOT_HERE = NotRead("not here")
BROKEN = NotRead("no answer", fault=True)


@pytest.mark.parametrize(
    ("found", "result", "words"),
    [
        (BootCounting(CountedBy.GRUB), "ok", "are counted by GRUB"),
        (BootCounting(CountedBy.SYSTEMD_BOOT), "ok", "are counted by systemd-boot"),
        (BootCounting(why="the boot loader is not GRUB"), "skipped", "are not counted: the boot loader is not GRUB"),
        (NOT_HERE, "skipped", "not here"),
        (BROKEN, "failed", "no answer"),
    ],
)
def test_boots(found: BootCounting | NotRead, result: str, words: str) -> None:
    check = boot_check(found)
    assert (check.id, check.result) == ("boot.count", result)
    assert words in check.message


async def test_boots_that_are_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """GRUB's configuration may be for root; a host without deployments counts nothing."""
    found = await read_counting(BootCountingSettings(), tmp_path)
    assert isinstance(found, NotRead) and not found.fault
    (tmp_path / "run").mkdir()
    (tmp_path / "run/ostree-booted").touch()
    counting = BootCounting(why="it cannot be read")

    class Counter:
        def __init__(self, *, enabled: bool) -> None:
            assert enabled

        async def counting(self) -> BootCounting:
            if counting.greenboot:
                raise PermissionError(13, "Permission denied", "/boot/grub2/grub.cfg")
            return counting

    monkeypatch.setattr(self_check, "HostBootCounter", Counter)
    monkeypatch.setattr(self_check.os, "geteuid", lambda: 0)
    assert await read_counting(BootCountingSettings(), tmp_path) == counting
    monkeypatch.setattr(self_check.os, "geteuid", lambda: 1000)
    assert await read_counting(BootCountingSettings(), tmp_path) == NotRead("it cannot be read", "run it as root")
    counting = BootCounting(greenboot=True)
    found = await read_counting(BootCountingSettings(), tmp_path)
    assert isinstance(found, NotRead) and (found.fault, found.remedy) == (False, "run it as root")
