# SPDX-License-Identifier: Apache-2.0
"""The desired config as a file: what is read, and what is not even opened as a file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nodeagent.errors import InvalidInput, Terminal
from nodeagent.host import config_file

pytestmark = pytest.mark.usefixtures("no_leaked_fds")


async def test_read(tmp_path: Path) -> None:
    path = tmp_path / "machineconfig.yaml"
    assert await config_file.read(str(path)) is None
    path.write_bytes(b"kind: MachineConfig\n")
    path.chmod(0o600)
    assert await config_file.read(str(path)) == b"kind: MachineConfig\n"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.symlink_to("/dev/null"), "UnsafeConfig"),
        (lambda path: os.mkfifo(path, 0o600), "UnsafeConfig"),
        (lambda path: path.mkdir(0o700), "UnsafeConfig"),
        (lambda path: path.touch(0o600) or path.chmod(0o666), "UnsafeConfig"),
        (lambda path: path.touch(0o600) or os.truncate(path, config_file.MAX_BYTES + 1), "TooLarge"),
    ],
    ids=["a link", "a FIFO", "a directory", "writable by others", "too large"],
)
async def test_what_is_no_config(tmp_path: Path, make: Callable[[Path], object], reason: str) -> None:
    path = tmp_path / "machineconfig.yaml"
    make(path)
    with pytest.raises(InvalidInput) as caught:
        await config_file.read(str(path))
    assert caught.value.reason == reason


@asynccontextmanager
async def watching(path: Path) -> AsyncIterator[asyncio.Queue[None]]:
    changes: asyncio.Queue[None] = asyncio.Queue()
    task = asyncio.create_task(config_file.watch(str(path), lambda: changes.put_nowait(None)))
    try:
        yield changes
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _replace(path: Path) -> None:
    path.with_name(".new").write_text("2")
    path.with_name(".new").rename(path)


@pytest.mark.parametrize(
    "change",
    [lambda path: path.write_text("2"), _replace, Path.unlink, lambda path: path.rename(path.with_name("old"))],
    ids=["written", "replaced", "removed", "moved away"],
)
async def test_a_change_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object]
) -> None:
    monkeypatch.setattr(config_file, "SETTLE", 0.01)
    path = tmp_path / "machineconfig.yaml"
    path.write_text("1")
    async with watching(path) as changes:
        await asyncio.wait_for(changes.get(), 5)  # it may have changed before the watch began
        (tmp_path / "machineconfig.yaml.swp").write_text("an editor's")
        await asyncio.sleep(0.05)
        assert changes.empty(), "of another file"
        change(path)
        await asyncio.wait_for(changes.get(), 5)


async def test_the_directory_comes_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory above it is watched while there is none, and it is watched again when there is one."""
    monkeypatch.setattr(config_file, "SETTLE", 0.01)
    path = tmp_path / "etc" / "machineconfig.yaml"
    async with watching(path) as changes:
        for _ in range(2):
            await asyncio.sleep(0.1)
            assert changes.empty(), "a directory that is missing is not polled"
            path.parent.mkdir()
            await asyncio.wait_for(changes.get(), 5)
            path.write_text("1")
            await asyncio.wait_for(changes.get(), 5)
            path.unlink()
            await asyncio.wait_for(changes.get(), 5)
            path.parent.rmdir()
            await asyncio.wait_for(changes.get(), 5)


async def test_a_directory_of_files_that_is_made_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_file, "SETTLE", 0.01)
    directory = tmp_path / "policy.d"
    changes: asyncio.Queue[None] = asyncio.Queue()
    watch = config_file.watch_directory(
        str(directory), lambda name: name.endswith(".yaml"), lambda: changes.put_nowait(None)
    )
    task = asyncio.create_task(watch)
    try:
        for _ in range(2):
            await asyncio.sleep(0.1)
            assert changes.empty(), "a directory that is missing is not polled"
            directory.mkdir()
            await asyncio.wait_for(changes.get(), 5)
            (directory / "10-a.yaml.swp").write_text("an editor's")
            await asyncio.sleep(0.05)
            assert changes.empty(), "of another file"
            (directory / "10-a.yaml").write_text("1")
            await asyncio.wait_for(changes.get(), 5)
            (directory / "10-a.yaml").unlink()
            await asyncio.wait_for(changes.get(), 5)
            (directory / "10-a.yaml.swp").unlink()
            directory.rmdir()
            await asyncio.wait_for(changes.get(), 5)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_file_in_place_of_the_directory_is_polled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_file, "NO_WATCH_POLL", 0.01)
    (tmp_path / "policy.d").write_text("")
    changes: asyncio.Queue[None] = asyncio.Queue()
    watch = config_file.watch_directory(str(tmp_path / "policy.d"), lambda _: True, lambda: changes.put_nowait(None))
    task = asyncio.create_task(watch)
    try:
        for _ in range(3):
            await asyncio.wait_for(changes.get(), 5)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.symlink_to("/etc"), "UnsafeConfig"),
        (lambda path: path.write_text(""), "UnsafeConfig"),
        (lambda path: path.mkdir() or path.chmod(0o777), "UnsafeConfig"),
    ],
    ids=["a link", "a file", "writable by others"],
)
def test_an_unsafe_directory(tmp_path: Path, make: Callable[[Path], object], reason: str) -> None:
    path = tmp_path / "policy.d"
    assert config_file.names_in(str(path)) == []
    make(path)
    with pytest.raises(InvalidInput) as caught:
        config_file.names_in(str(path))
    assert caught.value.reason == reason


async def test_a_place_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Terminal, match="Not a directory") as caught:
        await config_file.read(str(tmp_path / "file/machineconfig.yaml"))
    assert caught.value.reason == "ConfigUnreadable"
    with pytest.raises(Terminal, match="File name too long") as caught:
        config_file.names_in(str(tmp_path / ("n" * 256)))
    assert caught.value.reason == "ConfigUnreadable"


def test_a_file_of_the_largest_size(tmp_path: Path) -> None:
    path = tmp_path / "machineconfig.yaml"
    path.write_bytes(b"1234")
    path.chmod(0o600)
    assert config_file.read_now(str(path), 4) == b"1234"
    with pytest.raises(InvalidInput) as caught:
        config_file.read_now(str(path), 3)
    assert caught.value.reason == "TooLarge"
