# SPDX-License-Identifier: Apache-2.0
"""Managed paths on real directories: what is written, compared, kept and removed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest

from nodeagent.core.config.file_tree import FileTreeEntry, RegularFile, SymbolicLink
from nodeagent.errors import AgentError, InvalidInput, Problem, Retryable, Terminal
from nodeagent.host.fs import atomic
from nodeagent.host.fs import files as files_module
from nodeagent.host.fs.files import DiskFiles, HostFiles
from nodeagent.host.fs.selinux import Labels
from nodeagent.reasons import Reason
from tests.support.disk import needs_root, tree

ME, MY_GROUP = os.geteuid(), os.getegid()


def file(content: bytes = b"new\n", mode: int = 0o644, **more: object) -> RegularFile:
    return RegularFile(content, mode, **{"user": ME, "group": MY_GROUP, "dir_owner": ME, **more})  # type: ignore[arg-type]


def link(target: str) -> SymbolicLink:
    return SymbolicLink(target, ME, MY_GROUP)


@pytest.fixture
def disk(tmp_path: Path) -> DiskFiles:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\ncore:x:1000:1001::/home/core:/bin/sh\n")
    (tmp_path / "etc/group").write_text("root:x:0:\ncore:x:1001:\nwheel:x:10:\n")
    return DiskFiles(str(tmp_path), labels=Labels(enabled=False))


class TestInstall:
    @pytest.mark.parametrize("mode", [0o600, 0o644, 0o755, 0o000, 0o4755, 0o2711])
    def test_writes_content_and_mode(self, disk: DiskFiles, tmp_path: Path, mode: int) -> None:
        assert disk.install("/etc/x", file(b"\0binary\xff", mode)) == []
        path = tmp_path / "etc/x"
        assert stat.S_IMODE(path.stat().st_mode) == mode
        assert path.read_bytes() == b"\0binary\xff" if ME == 0 or mode & 0o400 else True

    @needs_root
    def test_is_not_bent_by_the_umask(self, disk: DiskFiles, tmp_path: Path) -> None:
        before = os.umask(0o077)
        try:
            disk.install("/etc/a/x", file(mode=0o666))
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / "etc/a/x").stat().st_mode) == 0o666
        assert stat.S_IMODE((tmp_path / "etc/a").stat().st_mode) == 0o755

    def test_replaces_a_file_without_touching_its_other_names(self, disk: DiskFiles, tmp_path: Path) -> None:
        (tmp_path / "etc/x").write_text("old")
        os.link(tmp_path / "etc/x", tmp_path / "etc/other")
        disk.install("/etc/x", file())
        assert (tmp_path / "etc/other").read_text() == "old"
        assert (tmp_path / "etc/x").read_bytes() == b"new\n"

    def test_replaces_a_link_and_not_what_it_points_to(self, disk: DiskFiles, tmp_path: Path) -> None:
        (tmp_path / "precious").write_text("precious")
        (tmp_path / "etc/x").symlink_to("../precious")
        disk.install("/etc/x", file())
        assert (tmp_path / "precious").read_text() == "precious"
        assert not (tmp_path / "etc/x").is_symlink()

    def test_replaces_a_file_by_a_link_and_back(self, disk: DiskFiles, tmp_path: Path) -> None:
        disk.install("/etc/x", file())
        disk.install("/etc/x", link("/dev/null"))
        assert os.readlink(tmp_path / "etc/x") == "/dev/null"
        disk.install("/etc/x", file())
        assert (tmp_path / "etc/x").read_bytes() == b"new\n"

    @needs_root
    def test_makes_parents_and_names_them_outermost_first(self, disk: DiskFiles, tmp_path: Path) -> None:
        node = file(dir_mode=0o700)
        assert disk.missing_dirs(["/etc/a/b/x", "/etc/a/y", "/etc/z"]) == ["/etc/a", "/etc/a/b"]
        assert disk.install("/etc/a/b/x", node) == ["/etc/a", "/etc/a/b"]
        assert disk.install("/etc/a/b/y", node) == []
        assert disk.missing_dirs(["/etc/a/b/x"]) == []
        assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("etc/a", "etc/a/b")} == {0o700}

    @needs_root
    def test_takes_a_file_in_the_way_for_one_that_goes_first(self, disk: DiskFiles) -> None:
        disk.install("/etc/a", file())
        assert disk.missing_dirs(["/etc/a/b/x"]) == ["/etc/a", "/etc/a/b"]
        disk.remove("/etc/a", [])
        assert disk.install("/etc/a/b/x", file()) == ["/etc/a", "/etc/a/b"]

    @needs_root
    def test_gives_files_and_parents_to_the_user(self, disk: DiskFiles, tmp_path: Path) -> None:
        path = "/home/core/.ssh/authorized_keys.d/ignition"
        disk.install(path, RegularFile(b"k", 0o600, "core", "core", dir_mode=0o700, dir_owner="core"))
        for name in (path, "/home/core/.ssh/authorized_keys.d", "/home/core/.ssh", "/home/core"):
            info = Path(f"{tmp_path}{name}").stat()
            assert (info.st_uid, info.st_gid) == (1000, 1001), name
        home = (tmp_path / "home").stat()
        assert (home.st_uid, home.st_gid) == (1000, 1001)

    @needs_root
    def test_gives_a_link_itself_to_the_user(self, disk: DiskFiles, tmp_path: Path) -> None:
        (tmp_path / "precious").write_text("")
        disk.install("/etc/x", SymbolicLink("../precious", "core", "wheel"))
        info = (tmp_path / "etc/x").lstat()
        assert (info.st_uid, info.st_gid) == (1000, 10)
        assert (tmp_path / "precious").stat().st_uid == 0

    @pytest.mark.parametrize(
        ("node", "reason"),
        [(file(user="nobody-here"), "UnknownUser"), (file(group="no-such-group"), "UnknownGroup")],
    )
    def test_refuses_an_unknown_owner_by_name(
        self, disk: DiskFiles, tmp_path: Path, node: FileTreeEntry, reason: str
    ) -> None:
        before = tree(tmp_path)
        with pytest.raises(Terminal, match=str(node.user if reason == "UnknownUser" else node.group)) as caught:
            disk.install("/etc/a/x", node)
        assert caught.value.reason == reason
        assert tree(tmp_path) == before

    @needs_root
    def test_keeps_no_acl_of_the_directory(self, disk: DiskFiles, tmp_path: Path) -> None:
        # Version 2; user::rwx, user:1234:rwx, group::r-x, mask::rwx, other::r-x. See linux/posix_acl_xattr.h.
        entries = [(1, 7, 0xFFFFFFFF), (2, 7, 1234), (4, 5, 0xFFFFFFFF), (0x10, 7, 0xFFFFFFFF), (0x20, 5, 0xFFFFFFFF)]
        acl = (2).to_bytes(4, "little") + b"".join(
            tag.to_bytes(2, "little") + perm.to_bytes(2, "little") + who.to_bytes(4, "little")
            for tag, perm, who in entries
        )
        try:
            os.setxattr(tmp_path / "etc", "system.posix_acl_default", acl)
        except OSError as error:
            pytest.skip(f"no ACLs on this file system: {error}")
        disk.install("/etc/a/x", file(mode=0o600))
        for name in ("etc/a", "etc/a/x"):
            assert not [attr for attr in os.listxattr(tmp_path / name) if "acl" in attr]
        assert stat.S_IMODE((tmp_path / "etc/a/x").stat().st_mode) == 0o600

    @pytest.mark.parametrize("kind", ["directory", "pipe", "socket"])
    def test_refuses_what_is_no_file(self, disk: DiskFiles, tmp_path: Path, kind: str) -> None:
        path = tmp_path / "etc/x"
        if kind == "directory":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            here = os.getcwd()
            os.chdir(path.parent)  # a socket's name has at most 108 bytes
            try:
                with socket.socket(socket.AF_UNIX) as server:
                    server.bind("x")
            finally:
                os.chdir(here)
        before = tree(tmp_path)
        calls = [lambda: disk.install("/etc/x", file()), lambda: disk.remove("/etc/x", [])]
        for call in calls if kind == "directory" else [*calls, lambda: disk.capture("/etc/x")]:
            with pytest.raises(Terminal) as caught:
                call()
            assert caught.value.reason == "NotAFile"
        assert "where a file should be" in disk.differs("/etc/x", file())
        assert tree(tmp_path) == before

    def test_refuses_a_file_as_a_parent(self, disk: DiskFiles) -> None:
        with pytest.raises(Terminal, match="/etc/passwd") as caught:
            disk.install("/etc/passwd/x", file())
        assert caught.value.reason == "NotADirectory"
        assert disk.capture("/etc/passwd/x") is None
        assert disk.differs("/etc/passwd/x", None) == ""
        disk.remove("/etc/passwd/x", [])

    @pytest.mark.parametrize(
        "path", ["etc/x", "", "/", "/etc/../x", "/etc/./x", "/etc//x", "/etc/x/", "/e\0", "/\udc80"]
    )
    def test_refuses_a_path_that_is_not_plain(self, disk: DiskFiles, path: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            disk.install(path, file())
        assert caught.value.reason == "BadPath"

    @needs_root
    def test_names_that_are_too_long(self, disk: DiskFiles, tmp_path: Path) -> None:
        before = tree(tmp_path)
        for path in ("/etc/" + "x" * 256, "/etc/new/" + "x" * 256, "/etc/" + "x" * 256 + "/y"):
            with pytest.raises(Terminal) as caught:
                disk.install(path, file())
            assert caught.value.reason == "NameTooLong"
        assert tree(tmp_path) == before


class TestCapture:
    def test_of_nothing(self, disk: DiskFiles) -> None:
        assert disk.capture("/etc/x") is None
        assert disk.capture("/no/such/dir") is None

    def test_of_a_file(self, disk: DiskFiles, tmp_path: Path) -> None:
        (tmp_path / "etc/x").write_bytes(b"old")
        (tmp_path / "etc/x").chmod(0o4750)
        (tmp_path / "etc").chmod(0o711)
        assert disk.capture("/etc/x") == file(b"old", 0o4750, dir_mode=0o711)

    def test_of_a_link_that_points_nowhere(self, disk: DiskFiles, tmp_path: Path) -> None:
        (tmp_path / "etc/x").symlink_to("nowhere")
        assert disk.capture("/etc/x") == link("nowhere")

    def test_of_a_file_that_is_too_large(self, tmp_path: Path) -> None:
        disk = DiskFiles(str(tmp_path), labels=Labels(enabled=False), limit=1000)
        (tmp_path / "x").write_bytes(b"x" * 1000)
        assert disk.capture("/x") is not None
        os.truncate(tmp_path / "x", 1 << 40)  # sparse: reading it would take all memory
        with pytest.raises(Terminal, match=str(1 << 40)) as caught:
            disk.capture("/x")
        assert caught.value.reason == "FileTooLarge"

    @needs_root
    def test_directory_comes_back_as_it_was(self, disk: DiskFiles, tmp_path: Path) -> None:
        """A revert after a removal that took the directory along."""
        made = disk.install("/etc/a/b/x", file(dir_mode=0o700))
        before, kept = tree(tmp_path), disk.capture("/etc/a/b/x")
        disk.remove("/etc/a/b/x", made)
        assert not (tmp_path / "etc/a").exists()
        assert kept is not None
        disk.install("/etc/a/b/x", kept)
        assert tree(tmp_path) == before


class TestRemove:
    @needs_root
    def test_takes_only_empty_directories_that_we_made(self, disk: DiskFiles, tmp_path: Path) -> None:
        (tmp_path / "etc/theirs").mkdir()
        made = disk.install("/etc/theirs/a/b/x", file())
        disk.install("/etc/theirs/a/y", file())
        disk.remove("/etc/theirs/a/b/x", made)
        assert sorted(tree(tmp_path / "etc/theirs")) == ["a", "a/y"]
        disk.remove("/etc/theirs/a/y", made)
        assert tree(tmp_path / "etc/theirs") == {}

    @needs_root
    def test_goes_on_where_a_kill_stopped_it(self, disk: DiskFiles, tmp_path: Path) -> None:
        made = disk.install("/etc/a/b/x", file())
        os.unlink(tmp_path / "etc/a/b/x")
        os.rmdir(tmp_path / "etc/a/b")
        disk.remove("/etc/a/b/x", made)
        assert not (tmp_path / "etc/a").exists()
        disk.remove("/etc/a/b/x", made)

    def test_removes_a_link_and_not_what_it_points_to(self, disk: DiskFiles, tmp_path: Path) -> None:
        (tmp_path / "etc/x").symlink_to("passwd")
        disk.remove("/etc/x", [])
        assert (tmp_path / "etc/passwd").exists()
        assert not (tmp_path / "etc/x").is_symlink()


class TestDiffers:
    @pytest.mark.parametrize(
        ("there", "wanted", "words"),
        [
            (file(), file(), ""),
            (link("a"), link("a"), ""),
            (None, None, ""),
            (None, file(), "is missing"),
            (file(), None, "should not exist"),
            (file(), file(b"newer"), "content differs"),
            (file(), file(b"NEW\n"), "content differs"),
            (file(mode=0o600), file(mode=0o644), "mode is 0600, not 0644"),
            (file(mode=0o600), file(b"other", mode=0o644), "mode is 0600, not 0644; content differs"),
            (link("a"), link("b"), "points elsewhere"),
            (link("a"), file(), "is a symbolic link, not a file"),
            (file(), link("a"), "is a file, not a symbolic link"),
            (file(), file(user=4242), f"owner is {ME}:{MY_GROUP}, not 4242:{MY_GROUP}"),
            (file(), file(user="nobody-here"), "this host has no user 'nobody-here'"),
        ],
    )
    def test_in_words(
        self, disk: DiskFiles, there: FileTreeEntry | None, wanted: FileTreeEntry | None, words: str
    ) -> None:
        if there is not None:
            disk.install("/etc/x", there)
        assert disk.differs("/etc/x", wanted) == words

    @needs_root
    def test_names_are_resolved(self, disk: DiskFiles) -> None:
        disk.install("/etc/x", file(user=1000, group=10))
        assert disk.differs("/etc/x", file(user="core", group="wheel")) == ""
        assert disk.differs("/etc/x", file(user="core", group="core")) == "owner is 1000:10, not 1000:1001"


@needs_root
class TestLabels:
    OLD, POLICY = "system_u:object_r:old_t:s0", "system_u:object_r:policy_t:s0"

    def disk(self, root: Path, policy: str | None = POLICY, customizable: str = "") -> DiskFiles:
        labels = Labels(True, lambda path, mode: policy, lambda label: label == customizable)
        return DiskFiles(str(root), labels=labels)

    def label(self, path: Path) -> str:
        return os.getxattr(path, "security.selinux", follow_symlinks=False).rstrip(b"\0").decode()

    def test_new_paths_get_what_the_policy_says(self, tmp_path: Path) -> None:
        self.disk(tmp_path).install("/a/x", file())
        self.disk(tmp_path).install("/a/l", link("x"))
        assert {self.label(tmp_path / name) for name in ("a", "a/x", "a/l")} == {self.POLICY}

    @pytest.mark.parametrize(
        ("old", "policy", "customizable", "expected"),
        [
            # A file that was moved here from a home would be unreadable for its service.
            (OLD, POLICY, "", POLICY),
            (OLD, POLICY, OLD, OLD),
            (OLD, None, "", OLD),
            ("unconfined_u:object_r:policy_t:s0:c1", POLICY, "", "unconfined_u:object_r:policy_t:s0:c1"),
        ],
    )
    def test_a_replaced_file_is_labelled_as_restorecon_does(
        self, tmp_path: Path, old: str, policy: str | None, customizable: str, expected: str
    ) -> None:
        (tmp_path / "x").write_text("old")
        os.setxattr(tmp_path / "x", "security.selinux", old.encode() + b"\0")
        disk = self.disk(tmp_path, policy, customizable)
        disk.install("/x", file())
        assert self.label(tmp_path / "x") == expected
        disk.install("/x", link("y"))  # another kind of file: its label is of no use
        assert policy is None or self.label(tmp_path / "x") == policy

    def test_they_are_set_before_the_names(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        renamed: dict[str, str] = {}
        rename = os.rename

        def observed(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
            directory = Path(f"/proc/self/fd/{src_dir_fd}").readlink()
            renamed[target] = self.label(directory / source)
            rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

        monkeypatch.setattr(atomic.os, "rename", observed)
        disk = self.disk(tmp_path)
        disk.install("/a/x", file())
        disk.install("/a/l", link("x"))
        monkeypatch.setattr(atomic, "_LABELS", Labels(True, lambda path, mode: f"u:r:{Path(path).name}_t:s0"))
        fd = os.open(tmp_path, os.O_RDONLY)
        try:
            with atomic.new_file(fd, "made", mode=0o600) as write:
                write(b"")
        finally:
            os.close(fd)
        assert renamed == {**dict.fromkeys(("a", "x", "l"), self.POLICY), "made": "u:r:made_t:s0"}

    def test_a_named_label_wins_and_is_compared(self, tmp_path: Path) -> None:
        disk, wanted = self.disk(tmp_path), file(label="system_u:object_r:named_t:s0")
        disk.install("/x", file())
        assert "SELinux label is" in disk.differs("/x", wanted)
        disk.install("/x", wanted)
        assert disk.differs("/x", wanted) == ""
        assert disk.differs("/x", file()) == ""

    def test_capture_keeps_it(self, tmp_path: Path) -> None:
        disk = self.disk(tmp_path)
        for node in (file(label=self.OLD, dir_mode=stat.S_IMODE(tmp_path.stat().st_mode)), link("y")):
            disk.install("/x", node)
            kept = disk.capture("/x")
            assert kept is not None
            assert kept.label == (node.label or self.POLICY)
            os.unlink(tmp_path / "x")
            disk.install("/x", kept)
            assert self.label(tmp_path / "x") == kept.label

    def test_without_a_policy_nothing_is_set(self, tmp_path: Path) -> None:
        self.disk(tmp_path, policy=None).install("/x", file())
        assert "security.selinux" not in os.listxattr(tmp_path / "x")


class TestSweep:
    @needs_root
    def test_takes_what_a_kill_left_and_nothing_else(self, disk: DiskFiles, tmp_path: Path) -> None:
        disk.install("/etc/a/x", file())
        ours = [".nodeagent-0123456789abcdef.tmp", "etc/.nodeagent-aaaaaaaaaaaaaaaa.tmp"]
        for name in ours:
            (tmp_path / name).write_text("half")
        (tmp_path / "etc/a/.nodeagent-bbbbbbbbbbbbbbbb.tmp").symlink_to("/etc")
        (tmp_path / "etc/.nodeagent-cccccccccccccccc.tmp").mkdir()
        for name in (".nodeagent-x.tmp", ".nodeagent-0123456789abcdeg.tmp", "nodeagent-0123456789abcdef.tmp"):
            (tmp_path / "etc" / name).write_text("theirs")
        assert disk.sweep(["/etc/a/x", "/etc/a/y", "/etc/none/z", "/etc/passwd/x"]) == []
        found = {path.name for path in tmp_path.rglob("*nodeagent-*")}
        assert found == {".nodeagent-x.tmp", ".nodeagent-0123456789abcdeg.tmp", "nodeagent-0123456789abcdef.tmp"}
        assert (tmp_path / "etc/a/x").exists()

    @pytest.mark.finding(
        "daemon: leftovers",
        "Leftover temporary files that cannot be removed are a problem in the status, never an error.",
    )
    @pytest.mark.parametrize("in_the_way", ["full directory", "pipe", "immutable", "directory that is a file"])
    def test_goes_on_after_what_it_cannot_remove(self, disk: DiskFiles, tmp_path: Path, in_the_way: str) -> None:
        """The owner of a directory with a managed file decides what is in it, and must not decide more than that."""
        name = ".nodeagent-0123456789abcdef.tmp"
        theirs, ours = tmp_path / "home/core" / name, tmp_path / "var" / name
        for path in (theirs, ours):
            path.parent.mkdir(parents=True)
        ours.write_text("half")
        with contextlib.ExitStack() as stack:
            match in_the_way:
                case "full directory":
                    (theirs / "x").mkdir(parents=True)
                case "pipe":
                    os.mkfifo(theirs)
                case "immutable":
                    theirs.write_text("")
                    if os.geteuid() or subprocess.run(["chattr", "+i", theirs], capture_output=True).returncode:
                        pytest.skip("needs root, chattr and a file system that knows attributes")
                    stack.callback(subprocess.run, ["chattr", "-i", theirs], check=True)
                case _:
                    theirs.parent.rmdir()
                    theirs.parent.write_text("")
            left = disk.sweep(["relative", "/home/core/keys", "/var/x"])
        assert not ours.exists()
        expected = [] if in_the_way == "directory that is a file" else [f"/home/core/{name}"]
        assert [problem.path for problem in left] == ["relative", *expected]

    def test_goes_on_after_a_directory_that_cannot_be_opened(self, disk: DiskFiles, tmp_path: Path) -> None:
        """The file system is the authority on names: one that is too long for it fails, and a link to itself."""
        name = "n" * 300
        (tmp_path / "etc/loop").symlink_to("loop")
        ours = tmp_path / "var/.nodeagent-0123456789abcdef.tmp"
        ours.parent.mkdir()
        ours.write_text("half")
        (problem,) = disk.sweep([f"/{name}/x", "/etc/loop/x", "/var/x"])
        assert problem == Problem(f"/{name}/*", f"cannot sweep /{name}/*: File name too long")
        assert not ours.exists()

    def test_reports_a_directory_that_keeps_changing(self, disk: DiskFiles, monkeypatch: pytest.MonkeyPatch) -> None:
        def changes(*_: object) -> None:
            raise Retryable("another program changes it all the time", reason=Reason.TRY_AGAIN)

        monkeypatch.setattr(files_module, "open_parent", changes)
        assert disk.sweep(["/etc/x"]) == [
            Problem(path, "another program changes it all the time") for path in ("/*", "/etc/*")
        ]


async def test_the_port_does_it_in_threads(tmp_path: Path) -> None:
    files = HostFiles(disk=DiskFiles(str(tmp_path), labels=Labels(enabled=False)))
    assert await files.missing_dirs(["/a/x"]) == ["/a"]
    made = await files.install("/a/x", file())
    assert await files.differs("/a/x", file()) == ""
    assert await files.capture("/a/x") == file()
    await files.remove("/a/x", made)
    assert await files.sweep(["/a/x"]) == []
    assert tree(tmp_path) == {}


async def test_what_follows_a_cancelled_write_comes_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deadline gives up on a slow disk; the revert must not be overtaken by the write that it takes back."""
    begun = threading.Event()

    def slow(fd: int) -> None:
        begun.set()
        time.sleep(0.2)
        os.fsync(fd)

    class SlowOs:
        def __getattr__(self, name: str) -> object:
            return slow if name == "fsync" and not begun.is_set() else getattr(os, name)

    monkeypatch.setattr(atomic, "os", SlowOs())
    files = HostFiles(disk=DiskFiles(str(tmp_path), labels=Labels(enabled=False)))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await files.install("/x", file(b"late"))
    await files.install("/x", file(b"reverted"))
    assert begun.is_set()
    await asyncio.sleep(0.3)
    assert await files.differs("/x", file(b"reverted")) == ""


async def test_an_unknown_user_reaches_the_caller(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="nobody-here"):
        await HostFiles(str(tmp_path)).install("/x", file(user="nobody-here"))
