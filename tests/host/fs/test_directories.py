# SPDX-License-Identifier: Apache-2.0
"""Managed directories on a real file system: nothing in them is touched, and no link is followed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from nodeagent.core.config.file_tree import Directory, SymbolicLink
from nodeagent.errors import Terminal
from nodeagent.host.fs.files import DiskFiles
from nodeagent.host.fs.selinux import Labels
from tests.support.disk import needs_root, tree

ME, MY_GROUP = os.geteuid(), os.getegid()


@pytest.fixture
def disk(tmp_path: Path) -> DiskFiles:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\ncore:x:1000:1001::/home/core:/bin/sh\n")
    (tmp_path / "etc/group").write_text("root:x:0:\ncore:x:1001:\n")
    return DiskFiles(str(tmp_path), labels=Labels(enabled=False))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@needs_root
def test_a_new_directory_is_0755_and_of_root(disk: DiskFiles, tmp_path: Path) -> None:
    assert disk.install("/etc/a/d", Directory()) == ["/etc/a"]
    assert mode(tmp_path / "etc/a/d") == 0o755
    assert disk.capture("/etc/a/d") == Directory(0o755, 0, 0)
    assert disk.differs("/etc/a/d", Directory()) == ""


def test_one_that_exists_keeps_what_the_entry_does_not_name(disk: DiskFiles, tmp_path: Path) -> None:
    place = tmp_path / "etc/d"
    place.mkdir(0o750)
    (place / "x").write_text("x")
    disk.install("/etc/d", Directory())
    assert (mode(place), (place / "x").read_text()) == (0o750, "x")
    assert disk.differs("/etc/d", Directory(0o700)) == "mode is 0750, not 0700"
    disk.install("/etc/d", Directory(0o700))
    assert (mode(place), (place / "x").read_text()) == (0o700, "x")


@needs_root
def test_the_owner_is_set(disk: DiskFiles, tmp_path: Path) -> None:
    place = tmp_path / "etc/d"
    place.mkdir()
    assert disk.differs("/etc/d", Directory(user="core")) == "owner is 0:0, not 1000:0"
    disk.install("/etc/d", Directory(user="core", group="core"))
    assert (place.stat().st_uid, place.stat().st_gid) == (1000, 1001)
    assert disk.owner_problem(Directory(user="bob")) == "this host has no user 'bob'"
    assert disk.owner_problem(Directory()) == ""


@pytest.mark.parametrize("kind", ["file", "link"])
def test_neither_a_file_nor_a_link_is_taken_for_one(disk: DiskFiles, tmp_path: Path, kind: str) -> None:
    if kind == "file":
        (tmp_path / "etc/d").write_text("")
    else:
        (tmp_path / "etc/other").mkdir(0o700)
        (tmp_path / "etc/d").symlink_to("other")
    before = tree(tmp_path)
    with pytest.raises(Terminal) as caught:
        disk.install("/etc/d", Directory(0o777))
    assert caught.value.reason == "NotADirectory"
    assert "where a directory should be" in disk.differs("/etc/d", Directory())
    assert "where a directory should be" in disk.survey(["/etc/d"], [], ["/etc/d"]).obstacles["/etc/d"]
    assert tree(tmp_path) == before


def test_only_an_empty_one_is_removed(disk: DiskFiles, tmp_path: Path) -> None:
    for name in ("empty", "full"):
        (tmp_path / "etc" / name).mkdir()
    (tmp_path / "etc/full/x").write_text("x")
    for name in ("empty", "full", "missing"):
        disk.remove(f"/etc/{name}", [], directory=True)
    assert not (tmp_path / "etc/empty").exists()
    assert (tmp_path / "etc/full/x").exists()


def test_the_survey_knows_a_directory_that_stays_one(disk: DiskFiles, tmp_path: Path) -> None:
    (tmp_path / "etc/d").mkdir()
    assert not disk.survey(["/etc/d"], [], ["/etc/d"]).obstacles
    assert not disk.survey([], ["/etc/d"], ["/etc/d"]).obstacles
    assert disk.survey(["/etc/d"], []).obstacles


def test_places_behind_links_are_those_of_the_made_directories(disk: DiskFiles, tmp_path: Path) -> None:
    (tmp_path / "var/home").mkdir(parents=True)
    (tmp_path / "home").symlink_to("var/home")
    assert disk.resolved(["/home/core/d", "/etc/d"]) == ["/var/home/core/d", "/etc/d"]
    assert disk.missing_dirs(["/home/core/d/x"]) == ["/var/home/core", "/var/home/core/d"]


def test_a_link_replaces_a_file_and_not_a_directory(disk: DiskFiles, tmp_path: Path) -> None:
    link = SymbolicLink("passwd", ME, MY_GROUP)
    (tmp_path / "etc/l").write_text("own")
    disk.install("/etc/l", link)
    assert os.readlink(tmp_path / "etc/l") == "passwd"
    (tmp_path / "etc/d").mkdir()
    with pytest.raises(Terminal):
        disk.install("/etc/d", link)
