# SPDX-License-Identifier: Apache-2.0
"""Changes of paths, on real files: each way to change one, and what lies above it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodeagent.errors import Retryable
from nodeagent.features.drift import path_watch
from nodeagent.features.drift.path_watch import PathWatch
from nodeagent.host.inotify import DirectoryWatches

pytestmark = pytest.mark.usefixtures("no_leaked_fds")


@pytest.fixture
def managed(tmp_path: Path) -> Path:
    path = tmp_path / "etc" / "app" / "content"
    path.parent.mkdir(parents=True)
    path.write_text("1")
    return path


@pytest.fixture
def watch() -> Iterator[PathWatch]:
    found = PathWatch()
    yield found
    found.close()


def _replace(path: Path) -> None:
    path.with_name(".new").write_text("2")
    path.with_name(".new").rename(path)


def _link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/null")


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_text("2"),
        _replace,
        Path.unlink,
        _link,
        lambda path: path.chmod(0o600),
        lambda path: os.utime(path),
        lambda path: path.rename(path.with_name("old")),
    ],
    ids=["written", "replaced", "removed", "a link", "mode", "time", "moved away"],
)
async def test_a_change(managed: Path, watch: PathWatch, change: Callable[[Path], object]) -> None:
    other = managed.with_name("other")
    assert await watch.watch([str(managed)]) == 0
    other.write_text("unmanaged")
    assert watch.changed() == set()
    change(managed)
    await asyncio.wait_for(watch.wait(), 5)
    assert watch.changed() == {str(managed)}
    assert watch.changed() == set()


@pytest.mark.parametrize(
    "change",
    [
        lambda etc: (etc / "app").rename(etc / "old"),
        lambda etc: etc.rename(etc.with_name("old")),
        lambda etc: (etc / "app").chmod(0o700),
    ],
    ids=["directory", "the one above", "mode of a directory"],
)
async def test_a_directory_above_is_a_reason_to_look_at_everything(
    managed: Path, watch: PathWatch, change: Callable[[Path], object]
) -> None:
    await watch.watch([str(managed)])
    change(managed.parent.parent)
    await asyncio.wait_for(watch.wait(), 5)
    assert watch.changed() is None


async def test_a_path_that_appears_with_its_directories(tmp_path: Path, watch: PathWatch) -> None:
    path = tmp_path / "later" / "deep" / "content"
    assert await watch.watch([str(path)]) == 0, "missing directories are none that cannot be watched"
    path.parent.mkdir(parents=True)
    assert watch.changed() is None
    await watch.watch([str(path)])
    path.write_text("1")
    assert watch.changed() == {str(path)}


async def test_too_many_directories_are_counted(
    managed: Path, watch: PathWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path_watch, "MAX_WATCHES", 2)
    assert await watch.watch([str(managed)]) == len(managed.parts) - 1 - 2


async def test_lost_events_are_a_reason_to_look_at_everything(managed: Path, watch: PathWatch) -> None:
    await watch.watch([str(managed)])
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for _ in range(most // 2 + 1):  # a time is an event each, unless it is that of the event before
        managed.chmod(0o600)
        os.utime(managed.parent)
    while (found := watch.changed()) is not None and found:
        pass
    assert found is None


async def test_without_an_instance(watch: PathWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(_self: DirectoryWatches) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(DirectoryWatches, "__init__", none_left)
    with pytest.raises(Retryable) as caught:
        await watch.watch(["/etc/app/content"])
    assert caught.value.reason == "NoWatch"
