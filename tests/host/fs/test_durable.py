# SPDX-License-Identifier: Apache-2.0
"""What is written, removed or made is durable when the call returns: the directory is synced after each of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.host.fs.files import DiskFiles
from nodeagent.host.fs.selinux import Labels
from tests.host.fs.test_files import file, link

Call = tuple[str, str]


@pytest.fixture
def disk(tmp_path: Path) -> DiskFiles:
    (tmp_path / "etc").mkdir()
    return DiskFiles(str(tmp_path), labels=Labels(enabled=False))


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """The calls that change a directory, and the syncs of directories, in order, with the directory of each."""
    made: list[Call] = []

    def place(fd: int) -> str:
        return os.readlink(f"/proc/self/fd/{fd}").removeprefix(str(tmp_path)) or "/"

    def watch(name: str, keyword: str) -> None:
        real: Callable[..., None] = getattr(os, name)

        def noted(*args: object, **keywords: int) -> None:
            real(*args, **keywords)
            made.append((name, place(keywords[keyword])))

        monkeypatch.setattr(os, name, noted)

    for name, keyword in (("rename", "dst_dir_fd"), ("unlink", "dir_fd"), ("rmdir", "dir_fd"), ("mkdir", "dir_fd")):
        watch(name, keyword)
    sync = os.fsync

    def synced(fd: int) -> None:
        sync(fd)
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            made.append(("fsync", place(fd)))

    monkeypatch.setattr(os, "fsync", synced)
    return made


def durable(calls: list[Call]) -> bool:
    """Return whether each directory is synced after the last change in it."""
    changed = {place for name, place in calls if name != "fsync"}
    last = {place: name for name, place in calls}
    return bool(changed) and all(last[place] == "fsync" for place in changed)


@pytest.mark.finding(
    "decisions: durable renames", "A rename is durable when the call returns: the directory is synced after it."
)
@pytest.mark.parametrize("node", [file(), link("/usr/share/x")], ids=["file", "link"])
def test_a_write_is_durable(disk: DiskFiles, calls: list[Call], node: object) -> None:
    disk.install("/etc/a/b/x", node)  # type: ignore[arg-type]
    assert ("rename", "/etc/a/b") in calls
    assert durable(calls)


@pytest.mark.finding("decisions: durable removals", "A removal is durable when the call returns.")
def test_a_removal_is_durable(disk: DiskFiles, calls: list[Call]) -> None:
    disk.install("/etc/x", file())
    calls.clear()
    disk.remove("/etc/x", ())
    assert calls[0] == ("unlink", "/etc")
    assert durable(calls)


@pytest.mark.finding(
    "decisions: durable removals of directories", "The removal of an empty directory is durable when the call returns."
)
def test_the_removal_of_empty_directories_is_durable(disk: DiskFiles, calls: list[Call]) -> None:
    made = disk.install("/etc/a/b/x", file())
    calls.clear()
    disk.remove("/etc/a/b/x", made)
    assert [place for name, place in calls if name == "rmdir"] == ["/etc/a", "/etc"]
    assert durable(calls)
    assert calls.index(("fsync", "/etc/a")) > calls.index(("rmdir", "/etc/a"))
