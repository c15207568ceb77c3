# SPDX-License-Identifier: Apache-2.0
"""Looking at paths before anything is written, on a real file system."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodeagent.core.config.file_tree import RegularFile
from nodeagent.errors import AgentError
from nodeagent.host.fs.files import DiskFiles
from nodeagent.host.fs.mounts import Mounts
from nodeagent.update.ports.host import Survey
from tests.support.needs import needs

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


@contextmanager
def attribute(path: Path, flag: str) -> Iterator[None]:
    """Set an attribute of ext4, which would keep the test from removing its directory."""
    subprocess.run(["chattr", f"+{flag}", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["chattr", f"-{flag}", path], check=True)


@contextmanager
def opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def test_an_owner_that_the_host_does_not_have(root: Path) -> None:
    (root / "etc/passwd").write_text("chrony:x:990:990::/:/sbin/nologin\n")
    (root / "etc/group").write_text("chrony:x:990:\n")
    disk = DiskFiles(str(root))
    assert disk.owner_problem(RegularFile(b"", user="chrony", group="chrony")) == ""
    assert disk.owner_problem(RegularFile(b"", user=4000)) == "", "a number needs no account"
    assert disk.owner_problem(RegularFile(b"", user="chorny")) == "this host has no user 'chorny'"
    assert disk.owner_problem(RegularFile(b"", group="wheel")) == "this host has no group 'wheel'"


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


@pytest.mark.finding("files: what is in the way", "What is in the way of a path is found before the lease is taken.")
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


# --- what keeps a file from being written, or from staying

needs_attributes = needs("chattr")
BELOW_ROOT = ("/data/x.conf", "/x.conf")


@pytest.mark.finding("files: known before the lease", "A path whose parent cannot be made is known before the lease.")
@needs_root
@needs_attributes
@pytest.mark.parametrize("flag", ["i", "a"])
@pytest.mark.parametrize("path", BELOW_ROOT)
def test_a_root_with_an_attribute_takes_no_entry(root: Path, path: str, flag: str) -> None:
    with attribute(root, flag):
        found = look(root, [path, "/etc/app/x"], ["/etc/gone", "/gone"])
    assert list(found.obstacles) == [path], "what is below another directory can be written"
    assert "(lsattr -d /)" in found.obstacles[path]
    assert not look(root, [path]).obstacles


@pytest.mark.finding("files: known before the lease", "A file with an attribute of ext4 is known before the lease.")
@needs_root
@needs_attributes
def test_a_file_that_is_immutable(root: Path) -> None:
    file = root / "etc/app/x"
    file.write_text("")
    with attribute(file, "i"):
        assert list(look(root, ["/etc/app/x"]).obstacles) == ["/etc/app/x"]
        assert list(look(root, [], ["/etc/app/x"]).obstacles) == ["/etc/app/x"], "it cannot be removed either"
    assert not look(root, ["/etc/app/x"]).obstacles


@pytest.mark.finding("users: paths that cannot be written", "A path below a read-only mount is known before the lease.")
def test_a_read_only_mount(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "usr/local").mkdir(parents=True)
    sealed = (root / "usr/local").stat().st_ino
    real = os.fstatvfs

    def fstatvfs(fd: int) -> os.statvfs_result:
        found = real(fd)
        if os.fstat(fd).st_ino != sealed:
            return found
        return os.statvfs_result((*found[:8], found.f_flag | os.ST_RDONLY, *found[9:]))

    monkeypatch.setattr(os, "fstatvfs", fstatvfs)
    found = look(root, ["/usr/local/bin/x", "/usr/local/y", "/etc/app/x"])
    assert list(found.obstacles) == ["/usr/local/bin/x", "/usr/local/y"]
    assert found.obstacles["/usr/local/bin/x"] == (
        "/usr/local/bin cannot be created: /usr/local is on a file system that is mounted read-only for nodeagent"
    )


def mountinfo(*lines: tuple[int, str, str]) -> str:
    """Lines of proc_pid_mountinfo(5): the device, the mount point and the type."""
    return "".join(
        f"36 35 {os.major(device)}:{os.minor(device)} / {point} rw,noatime shared:1 - {kind} none rw\n"
        for device, point, kind in lines
    )


@pytest.mark.finding("files: paths that do not last", "A path that does not survive a boot is known before the lease.")
def test_a_directory_in_memory(root: Path) -> None:
    shared, disk = Path("/dev/shm").stat().st_dev, root.stat().st_dev
    text = mountinfo((disk, "/", "ext4"), (shared, "/mnt", "tmpfs"))
    with opened(Path("/dev/shm")) as fd:
        assert "missing after a boot" in Mounts(str(root), text).obstacle(fd, "/mnt")
    with opened(root / "etc") as fd:
        assert Mounts(str(root), text).obstacle(fd, "/etc") == ""
        stateless = mountinfo((disk, "/", "tmpfs"))
        assert Mounts(str(root), stateless).obstacle(fd, "/etc") == "", "a host without a disk keeps nothing"


@pytest.mark.finding(
    "files: paths that do not last", "A directory of all users that is in memory is known before the lease."
)
@needs_root
def test_a_directory_of_all_users_in_memory() -> None:
    found = look(Path("/"), ["/dev/shm/site/x.conf"])
    assert list(found.obstacles) == ["/dev/shm/site/x.conf"]


@pytest.mark.finding("files: known before the lease", "A file at which something is mounted is known before the lease.")
def test_a_mount_point(root: Path) -> None:
    (root / "etc/app/a b").write_text("")
    text = mountinfo((os.makedev(8, 1), f"{root}/etc/app/a\\040b", "ext4"))
    mounts = Mounts(str(root), text)
    assert mounts.is_point("/etc/app/a b")
    assert not mounts.is_point("/etc/app")


@pytest.mark.finding(
    "users: names and paths by mistake",
    "A path whose first directory the host lacks is a warning with the one that was meant.",
)
def test_a_first_directory_that_does_not_exist(root: Path) -> None:
    found = look(root, ["/ect/chrony.conf", "/ect/x/y", "/etc/new/x", "/data/x"], ["/gone/x"])
    assert not found.obstacles
    assert found.new_tops == {"/ect": "; did you mean /etc?", "/data": ""}
