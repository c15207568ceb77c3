# SPDX-License-Identifier: Apache-2.0
"""A directory of MachineConfigs as the desired config."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nodeagent.agent.report.report import Report
from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.config.parse import parse
from nodeagent.errors import AgentError, Terminal
from nodeagent.features.fragments import directory as module
from nodeagent.features.fragments.directory import ConfigDirectory, read_directory
from nodeagent.host import config_file
from nodeagent.host.config_file import desired_file, names_directory
from nodeagent.host.fs.files import HostFiles
from nodeagent.host.store.store import SqliteStore
from nodeagent.reasons import Reason
from nodeagent.report.status import Status
from tests.cli.conftest import machine_config, write


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    path = tmp_path / "configs"
    (path / "host.d").mkdir(parents=True)
    for directory in (path, path / "host.d"):
        directory.chmod(0o755)
    add(path, "a", {"/etc/a": b"1"})
    return path


def add(directory: Path, name: str, files: dict[str, bytes]) -> Path:
    path = write(directory / f"{name}.json", machine_config(name, files))
    path.chmod(0o644)
    return path


class Host:
    """The store, the desired file and the status of a host."""

    def __init__(self, root: Path, store: SqliteStore) -> None:
        self.target, self.store, self.report = root / "desired.json", store, Report(Status())

    def of(self, configs: Path) -> ConfigDirectory:
        return ConfigDirectory(str(configs), str(self.target), HostFiles(), self.store, self.report)

    def files(self) -> dict[str, bytes]:
        return {path: entry.content for path, entry in parse(self.target.read_bytes()).files.items()}

    @property
    def problems(self) -> list[str]:
        return [f"{problem.reason}: {problem.message}" for problem in self.report.status.problems]


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    store = SqliteStore(tmp_path / "state/state.db")
    await store.open()
    yield Host(tmp_path, store)
    await store.close()


async def test_what_it_gives_is_written_once(host: Host, configs: Path) -> None:
    add(configs / "host.d", "h", {"/etc/a": b"own"})
    await host.of(configs).update()
    assert host.files() == {"/etc/a": b"own"}
    assert host.target.stat().st_mode & 0o777 == 0o600
    # An operator has applied another config, or rolled back: that remains until the directory changes.
    other = machine_config("other", {"/etc/other": b""})
    write(host.target, other)
    await host.of(configs).update()
    assert host.files() == {"/etc/other": b""}
    add(configs, "b", {"/etc/b": b"2"})
    await host.of(configs).update()
    assert host.files() == {"/etc/a": b"own", "/etc/b": b"2"}


async def test_a_kill_before_the_note_writes_it_again(
    host: Host, configs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def killed(*_: object) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr(host.store, "keep_note", killed)
        with pytest.raises(asyncio.CancelledError):
            await host.of(configs).update()
    assert host.files() == {"/etc/a": b"1"}
    await host.of(configs).update()
    assert host.files() == {"/etc/a": b"1"}


async def test_invalid_files_change_nothing_and_are_all_named(host: Host, configs: Path) -> None:
    await host.of(configs).update()
    for name in ("x", "y"):
        (configs / f"{name}.yaml").write_text("{}")
        (configs / f"{name}.yaml").chmod(0o644)
    add(configs, "b", {"/etc/b": b"2"})
    await host.of(configs).update()
    assert host.files() == {"/etc/a": b"1"}
    (problem,) = host.problems
    assert problem.startswith("FragmentsInvalid: ")
    assert "x.yaml" in problem
    assert "y.yaml" in problem
    for name in ("x", "y"):
        (configs / f"{name}.yaml").unlink()
    await host.of(configs).update()
    assert host.files() == {"/etc/a": b"1", "/etc/b": b"2"}
    assert host.problems == []


async def test_an_empty_directory_removes_nothing(host: Host, configs: Path) -> None:
    await host.of(configs).update()
    (configs / "a.json").unlink()
    await host.of(configs).update()
    assert host.files() == {"/etc/a": b"1"}
    assert await asyncio.to_thread(read_directory, str(configs)) is None


@pytest.mark.parametrize("where", ["a.json", ".", "host.d"])
def test_what_other_users_can_write_is_refused(configs: Path, where: str) -> None:
    (configs / where).chmod(0o777)
    with pytest.raises(AgentError) as caught:
        read_directory(str(configs))
    assert caught.value.reason == "UnsafeConfig"


def test_a_link_is_refused(configs: Path, tmp_path: Path) -> None:
    os.symlink(tmp_path / "elsewhere", configs / "b.yaml")
    with pytest.raises(AgentError) as caught:
        read_directory(str(configs))
    assert caught.value.reason == "UnsafeConfig"


@asynccontextmanager
async def running(directory: ConfigDirectory) -> AsyncIterator[None]:
    task = asyncio.create_task(directory.run())
    yield
    task.cancel()
    await asyncio.wait([task])


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.02)


async def test_changes_are_followed(host: Host, configs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUIET", 0.1)
    async with running(host.of(configs)):
        await until(host.target.exists)
        add(configs / "host.d", "h", {"/etc/h": b"h"})
        await until(lambda: "/etc/h" in host.files())
        # Also where the directory of this host alone is made again.
        (configs / "host.d/h.json").unlink()
        (configs / "host.d").rmdir()
        await until(lambda: "/etc/h" not in host.files())
        (configs / "host.d").mkdir(mode=0o755)
        add(configs / "host.d", "h", {"/etc/h": b"again"})
        await until(lambda: host.files().get("/etc/h") == b"again")


async def test_a_full_disk_is_tried_again(host: Host, configs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUIET", 0.05)
    monkeypatch.setattr(module, "RETRY", 0.2)
    install, failures = HostFiles.install, [Terminal("no space left", reason=Reason.NO_SPACE)]

    async def full(self: HostFiles, path: str, entry: RegularFile) -> None:
        if failures:
            raise failures.pop()
        await install(self, path, entry)

    monkeypatch.setattr(HostFiles, "install", full)
    async with running(host.of(configs)):
        await until(lambda: host.problems or not failures)
        await until(host.target.exists)
        await until(lambda: not host.problems)
    assert host.files() == {"/etc/a": b"1"}


async def test_files_that_come_one_after_another_are_one_change(
    host: Host, configs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUIET", 1.0)
    seen = []
    write_config = ConfigDirectory._write

    async def noted(self: ConfigDirectory, text: bytes) -> None:
        seen.append(len(parse(text).files))
        await write_config(self, text)

    monkeypatch.setattr(ConfigDirectory, "_write", noted)
    async with running(host.of(configs)):
        for number in range(5):
            add(configs, f"b{number}", {f"/etc/b{number}": b""})
            await asyncio.sleep(0.1)
        await until(lambda: seen)
    assert seen == [6]


def test_the_file_that_is_written(tmp_path: Path) -> None:
    assert desired_file(str(tmp_path), "/var/lib/nodeagent") == "/var/lib/nodeagent/desired.json"
    assert desired_file(str(tmp_path / "mc.yaml"), "/var/lib/nodeagent") == str(tmp_path / "mc.yaml")


@pytest.mark.parametrize(
    ("name", "is_directory"), [("configs", True), ("configs.yaml/", True), ("mc.yaml", False), ("mc.json", False)]
)
def test_where_there_is_nothing_the_name_decides(tmp_path: Path, name: str, *, is_directory: bool) -> None:
    path = f"{tmp_path}/{name}"
    assert names_directory(path) is is_directory
    # A file without an ending, as it may be there already.
    Path(path).write_bytes(b"")
    assert not names_directory(path.rstrip("/"))


async def test_the_directory_may_be_made_later(
    host: Host, configs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also its parents. What is made in host.d is followed at once, too, and nothing is polled."""
    monkeypatch.setattr(module, "QUIET", 0.1)
    monkeypatch.setattr(config_file, "NO_WATCH_POLL", 3600)
    later = tmp_path / "srv/machines/later"
    async with running(host.of(later)):
        await asyncio.sleep(0.2)
        (tmp_path / "srv").mkdir()
        await asyncio.sleep(0.2)
        (tmp_path / "srv/machines").mkdir()
        await asyncio.sleep(0.2)
        configs.rename(later)
        await until(host.target.exists)
        assert host.files() == {"/etc/a": b"1"}
        add(later / "host.d", "h", {"/etc/h": b"h"})
        await until(lambda: "/etc/h" in host.files())
