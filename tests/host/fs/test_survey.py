"""Looking at paths before anything is written, on a real file system."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.update.ports.host import Survey
from nodeagent.errors import AgentError
from nodeagent.host.fs.files import DiskFiles

OTHER = 1000
LIMIT = 1000

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give directories to another user")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root that only its owner can write, whatever the umask is."""
    top = tmp_path / "root"
    for place in ("", "etc", "etc/app", "home", "home/core"):
        (top / place).mkdir()
        (top / place).chmod(0o755)
    return top


def look(root: Path, writes: Sequence[str], removes: Sequence[str] = ()) -> Survey:
    return DiskFiles(str(root), limit=LIMIT).survey(writes, removes)


def test_nothing_is_in_the_way(root: Path) -> None:
    (root / "etc/app/x").write_bytes(b"x" * 10)
    (root / "etc/app/y").write_bytes(b"y" * 7)
    (root / "etc/app/link").symlink_to("x")
    found = look(root, ["/etc/app/x", "/etc/new/deep/z", "/etc/app/link"], ["/etc/app/y", "/etc/app/gone"])
    assert found == Survey({}, 17)


@pytest.mark.parametrize("path", ["/etc/app", "/etc/app/pipe"])
def test_what_is_no_file_is_in_the_way(root: Path, path: str) -> None:
    os.mkfifo(root / "etc/app/pipe")
    found = look(root, [path, "/etc/app/x"])
    assert list(found.obstacles) == [path]
    assert "where a file should be" in found.obstacles[path]


@pytest.mark.finding("R16-early", "What is in the way of a path is found before the lease is taken.")
def test_a_file_is_in_the_way_of_a_directory(root: Path) -> None:
    (root / "etc/app/x").write_text("")
    assert list(look(root, ["/etc/app/x/below"]).obstacles) == ["/etc/app/x/below"]
    assert not look(root, ["/etc/app/x/below"], ["/etc/app/x"]).obstacles, "the same update removes it first"
    assert not look(root, [], ["/etc/app/x/below"]).obstacles, "there is nothing to remove"


def test_a_directory_that_goes_with_its_last_file_makes_room(root: Path) -> None:
    (root / "etc/app/x").write_text("")
    assert not look(root, ["/etc/app"], ["/etc/app/x"]).obstacles


def test_a_file_too_large_to_keep(root: Path) -> None:
    (root / "etc/app/big").write_bytes(b"x" * (LIMIT + 1))
    assert "not kept for a revert" in look(root, ["/etc/app/big"]).obstacles["/etc/app/big"]


def test_only_root_can_reach_a_path(root: Path) -> None:
    files = DiskFiles(str(root))
    assert files.contested("/etc/app/x") == ""
    assert files.contested("/etc/nothing/here/yet") == ""


@needs_root
def test_others_can_reach_a_path(root: Path) -> None:
    files = DiskFiles(str(root))
    os.chown(root / "home/core", OTHER, OTHER)
    assert files.contested("/home/core/.ssh/authorized_keys.d/ignition") == "/home/core belongs to uid 1000"
    (root / "etc/app").chmod(0o775)
    assert files.contested("/etc/app/x") == "/etc/app is writable for users other than root"
    assert files.contested("/etc/x") == ""


@needs_root
def test_the_owner_of_a_directory_cannot_hide_it(root: Path) -> None:
    files = DiskFiles(str(root))
    os.chown(root / "home/core", OTHER, OTHER)
    (root / "home/core/link").symlink_to("/etc")
    os.lchown(root / "home/core/link", OTHER, OTHER)
    (root / "home/core/file").write_text("")
    for path in ("/home/core/link/x", "/home/core/file/x"):
        assert files.contested(path).startswith("/home/core ")
        with pytest.raises((AgentError, OSError)):
            files.install(path, RegularFile(b""))
        assert not look(root, [path]).obstacles, "its owner must not veto an update with it"
        assert "/etc/made" in files.missing_dirs([path, "/etc/made/x"])
