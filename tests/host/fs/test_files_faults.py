# SPDX-License-Identifier: Apache-2.0
"""Disks that refuse: the error has its word, the old state is whole, nothing of ours is left."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.core.config.file_tree import RegularFile, SymbolicLink
from nodeagent.errors import AgentError, Retryable, Terminal
from nodeagent.host.fs import atomic
from nodeagent.host.fs.files import DiskFiles
from nodeagent.host.fs.selinux import Labels
from tests.support.disk import MS_BIND, MS_RDONLY, MS_REMOUNT, in_mount_namespace, mount, needs_root, tree

ME, MY_GROUP = os.geteuid(), os.getegid()
OLD, NEW = (
    RegularFile(b"old\n", 0o640, ME, MY_GROUP, dir_owner=ME),
    RegularFile(b"new\n", 0o600, ME, MY_GROUP, dir_owner=ME),
)

_GET_FLAGS, _SET_FLAGS, _IMMUTABLE = 0x80086601, 0x40086602, 0x10  # linux/fs.h, on 64 bits


def disk(root: Path) -> DiskFiles:
    return DiskFiles(str(root), labels=Labels(enabled=False))


def refused(reason: str, call: Callable[[], object]) -> AgentError:
    with pytest.raises(AgentError) as caught:
        call()
    assert caught.value.reason == reason
    return caught.value


@needs_root
def test_no_space(tmp_path: Path) -> None:
    def work() -> None:
        mount("none", tmp_path, "tmpfs", options="size=64k,mode=755")
        disk(tmp_path).install("/etc/x", OLD)
        before = tree(tmp_path)
        large = RegularFile(b"x" * (1 << 20), 0o600)
        for path in ("/etc/x", "/etc/new", "/etc/a/b/new"):
            error = refused("NoSpace", lambda path=path: disk(tmp_path).install(path, large))
            assert isinstance(error, Terminal)
            assert path in error.message
            assert tree(tmp_path) == before
        disk(tmp_path).install("/etc/x", NEW)  # and there is room again

    in_mount_namespace(work)


@needs_root
def test_no_inodes(tmp_path: Path) -> None:
    def work() -> None:
        mount("none", tmp_path, "tmpfs", options="nr_inodes=4,mode=755")
        disk(tmp_path).install("/etc/x", OLD)
        (tmp_path / "etc/y").write_text("")
        before = tree(tmp_path)
        for path in ("/etc/x", "/etc/a/b/c/x"):
            refused("NoSpace", lambda path=path: disk(tmp_path).install(path, NEW))
        refused("NoSpace", lambda: disk(tmp_path).install("/etc/l", SymbolicLink("x" * 2000)))
        assert tree(tmp_path) == before

    in_mount_namespace(work)


@needs_root
def test_read_only(tmp_path: Path) -> None:
    disk(tmp_path).install("/usr/x", OLD)
    before = tree(tmp_path)

    def work() -> None:
        mount(str(tmp_path / "usr"), tmp_path / "usr", flags=MS_BIND)
        mount("none", tmp_path / "usr", flags=MS_BIND | MS_REMOUNT | MS_RDONLY)
        for path in ("/usr/x", "/usr/new", "/usr/a/x"):
            error = refused("ReadOnly", lambda path=path: disk(tmp_path).install(path, NEW))
            assert isinstance(error, Terminal)
        refused("ReadOnly", lambda: disk(tmp_path).remove("/usr/x", []))
        assert disk(tmp_path).differs("/usr/x", OLD) == ""

    in_mount_namespace(work)
    assert tree(tmp_path) == before


def _set_immutable(path: Path, on: bool) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        flags = int.from_bytes(fcntl.ioctl(fd, _GET_FLAGS, bytes(8)), "little")
        flags = flags | _IMMUTABLE if on else flags & ~_IMMUTABLE
        fcntl.ioctl(fd, _SET_FLAGS, flags.to_bytes(8, "little"))
    except OSError as error:
        pytest.skip(f"no attributes on this file system: {error}")
    finally:
        os.close(fd)


@needs_root
@pytest.mark.parametrize("what", ["etc/x", "etc"])
def test_immutable(tmp_path: Path, what: str) -> None:
    disk(tmp_path).install("/etc/x", OLD)
    before = tree(tmp_path)
    _set_immutable(tmp_path / what, True)
    try:
        error = refused("Immutable", lambda: disk(tmp_path).install("/etc/x", NEW))
        assert isinstance(error, Terminal)
        assert "lsattr" in error.hint
        refused("Immutable", lambda: disk(tmp_path).remove("/etc/x", []))
    finally:
        _set_immutable(tmp_path / what, False)
    assert tree(tmp_path) == before


@pytest.mark.skipif(ME == 0, reason="root may write everywhere")
def test_permission(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir(mode=0o500)
    refused("PermissionDenied", lambda: disk(tmp_path).install("/etc/x", NEW))


INJECTED = [
    (errno.EIO, Terminal, "DiskFault"),
    (errno.EDQUOT, Terminal, "QuotaExceeded"),
    (errno.EACCES, Terminal, "PermissionDenied"),
    (errno.ENOSPC, Terminal, "NoSpace"),
    (errno.EMFILE, Retryable, "OutOfHandles"),
    (errno.EPROTO, Terminal, "HostFault"),
]


@pytest.mark.parametrize(("code", "kind", "reason"), INJECTED)
@pytest.mark.parametrize("call", ["open", "write", "fchown", "fchmod", "fsync", "rename", "mkdir"])
def test_a_call_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int, kind: type[AgentError], reason: str
) -> None:
    """EIO and a quota cannot be had for real here; so these fail at the system call, each in turn."""
    disk(tmp_path).install("/etc/x", OLD)
    before = tree(tmp_path)

    class FailingOs:
        def __getattr__(self, name: str) -> object:
            return fail if name == call else getattr(os, name)

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(code, "injected")

    monkeypatch.setattr(atomic, "os", FailingOs())
    for path in ("/etc/a/b/x",) if call == "mkdir" else ("/etc/x", "/etc/a/x"):
        assert isinstance(refused(reason, lambda path=path: disk(tmp_path).install(path, NEW)), kind)
        assert tree(tmp_path) == before


def test_a_failing_second_write_takes_its_directories_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directories were made and synced; only the file fails."""

    def fail(fd: int, content: bytes) -> None:
        raise OSError(errno.EIO, "injected")

    monkeypatch.setattr(atomic, "_write", fail)
    refused("DiskFault", lambda: disk(tmp_path).install("/a/b/c/x", NEW))
    assert tree(tmp_path) == {}


def test_a_write_that_takes_only_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class ShortOs:
        def __getattr__(self, name: str) -> object:
            return (lambda fd, data: os.write(fd, data[:7])) if name == "write" else getattr(os, name)

    monkeypatch.setattr(atomic, "os", ShortOs())
    content = bytes(range(256)) * 3
    disk(tmp_path).install("/x", RegularFile(content, 0o600, ME, MY_GROUP))
    assert (tmp_path / "x").read_bytes() == content
