# SPDX-License-Identifier: Apache-2.0
"""The label database of libselinux, asked for real with a policy of our own; no SELinux kernel is needed for that."""

from __future__ import annotations

import errno
import json
import stat
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from nodeagent.host.fs import selinux
from nodeagent.host.fs.selinux import Labels, policy_label

CONTEXTS = """\
/.*                      system_u:object_r:default_t:s0
/etc/.*           --     system_u:object_r:etc_t:s0
/etc/.*           -l     system_u:object_r:etc_link_t:s0
/etc/none         --     <<none>>
"""

# In a process of its own: the database is opened once and for all.
ASK = """
import ctypes, json, sys
from nodeagent.host.fs.selinux import policy_label
ctypes.CDLL("libselinux.so.1").selinux_set_policy_root(sys.argv[1].encode())
print(json.dumps([policy_label(path, int(mode)) for path, mode in json.loads(sys.argv[2])]))
"""


def ask(root: Path, *questions: tuple[str, int]) -> list[str | None]:
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(root), json.dumps(questions)], capture_output=True, text=True, timeout=30
    )
    if "cannot open shared object" in done.stderr:
        pytest.skip("libselinux is not installed")
    assert done.returncode == 0, done.stderr
    answer: list[str | None] = json.loads(done.stdout)
    return answer


def test_what_the_policy_says(tmp_path: Path) -> None:
    (tmp_path / "contexts/files").mkdir(parents=True)
    (tmp_path / "contexts/files/file_contexts").write_text(CONTEXTS)
    assert ask(
        tmp_path,
        ("/etc/x", stat.S_IFREG | 0o644),
        ("/etc/x", stat.S_IFLNK | 0o777),
        ("/etc/none", stat.S_IFREG),
        ("/var/x", stat.S_IFDIR),
        ("/etc/\u00e4\u00f6", stat.S_IFREG),
    ) == [
        "system_u:object_r:etc_t:s0",
        "system_u:object_r:etc_link_t:s0",
        None,
        "system_u:object_r:default_t:s0",
        "system_u:object_r:etc_t:s0",
    ]


def test_a_host_without_a_policy(tmp_path: Path) -> None:
    assert ask(tmp_path, ("/etc/x", stat.S_IFREG)) == [None]


def test_a_host_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selinux, "_LIBRARY", "libselinux-is-not-here.so.9")
    monkeypatch.setattr(selinux, "_library", None)
    assert policy_label("/etc/x", stat.S_IFREG) is None


def test_types_that_an_admin_may_choose(tmp_path: Path) -> None:
    (tmp_path / "contexts/files").mkdir(parents=True)
    (tmp_path / "contexts/files/file_contexts").write_text(CONTEXTS)
    (tmp_path / "contexts/customizable_types").write_text("swapfile_t\n")
    code = ASK.replace("policy_label(path, int(mode))", "selinux.is_customizable(path)")
    code = code.replace("import policy_label", "import selinux").replace("host.fs.selinux", "host.fs")
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), json.dumps([("u:r:swapfile_t:s0", 0), ("u:r:etc_t:s0", 0)])],
        capture_output=True,
        text=True,
        timeout=30,
    )
    if "cannot open shared object" in done.stderr:
        pytest.skip("libselinux is not installed")
    assert json.loads(done.stdout) == [True, False], done.stderr


def test_the_library_without_executable_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a domain that may not execute what libffi writes."""

    def refused(name: str) -> None:
        raise OSError(errno.EACCES, f"{name}: no executable memory")

    monkeypatch.setattr(selinux, "c_library", refused)
    monkeypatch.setattr(selinux, "_library", None)
    assert policy_label("/etc/x", stat.S_IFREG) is None
    assert not selinux.is_customizable("u:r:etc_t:s0")


@pytest.mark.parametrize(
    ("number", "wanted", "fails"),
    [
        (errno.ENOTSUP, None, False),
        (errno.ENOTSUP, "system_u:object_r:etc_t:s0", True),
        (errno.EPERM, None, True),
        (errno.EPERM, "system_u:object_r:etc_t:s0", True),
    ],
)
def test_a_file_system_without_labels(
    monkeypatch: pytest.MonkeyPatch, number: int, wanted: str | None, *, fails: bool
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(selinux.os, "setxattr", refuse)
    labels = Labels(enabled=True, policy=lambda *_: "system_u:object_r:lib_t:s0", customizable=lambda _: False)
    with pytest.raises(OSError, match="no") if fails else nullcontext():
        labels.write(0, "/x", 0o100644, wanted=wanted, replaced=None)


@pytest.mark.parametrize(("number", "fails"), [(errno.ENODATA, False), (errno.ENOTSUP, False), (errno.EACCES, True)])
def test_a_file_without_a_label(monkeypatch: pytest.MonkeyPatch, number: int, *, fails: bool) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(selinux.os, "getxattr", refuse)
    with pytest.raises(OSError, match="no") if fails else nullcontext():
        assert Labels(enabled=True).read(0) is None


@pytest.mark.parametrize(
    ("policy", "replaced", "customizable", "label"),
    [
        ("u:r:etc_t:s0", None, False, "u:r:etc_t:s0"),
        (None, "u:r:old_t:s0", False, "u:r:old_t:s0"),
        (None, None, False, None),
        ("u:r:etc_t:s0", "v:r:etc_t:s0:c1", False, "v:r:etc_t:s0:c1"),
        ("u:r:etc_t:s0", "u:r:old_t:s0", False, "u:r:etc_t:s0"),
        ("u:r:etc_t:s0", "u:r:old_t:s0", True, "u:r:old_t:s0"),
    ],
)
def test_the_label_that_is_written(
    monkeypatch: pytest.MonkeyPatch, policy: str | None, replaced: str | None, label: str | None, *, customizable: bool
) -> None:
    written: list[object] = []
    monkeypatch.setattr(selinux.os, "setxattr", lambda _fd, _name, value: written.append(value))
    labels = Labels(enabled=True, policy=lambda *_: policy, customizable=lambda _: customizable)
    labels.write(0, "/x", 0o100644, wanted=None, replaced=replaced)
    assert written == ([] if label is None else [label.encode() + b"\0"])


def test_switched_off_it_does_nothing(tmp_path: Path) -> None:
    off = Labels(enabled=False, policy=lambda path, mode: pytest.fail("asked"))
    assert off.read(-1) is None
    off.write(-1, "/x", stat.S_IFREG, wanted="a:b:c:s0", replaced=None)


def test_whether_it_is_on_is_asked_of_the_kernel() -> None:
    assert Labels().enabled == Path("/sys/fs/selinux/enforce").exists()
