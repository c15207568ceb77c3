# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from nodeagent.host.fs.text_file import TextFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.prom"


def test_all_users_may_read_it_with_any_umask(path: Path) -> None:
    before = os.umask(0o077)
    try:
        TextFile(str(path)).write("a 1\n")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert path.read_text() == "a 1\n"
    assert list(path.parent.iterdir()) == [path]


def test_a_reader_sees_one_or_the_other(path: Path) -> None:
    texts = ["a 1\n" * 3000, "b 2\n" * 9000]
    file = TextFile(str(path))
    file.write(texts[0])
    seen: set[str] = set()
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            seen.add(path.read_text())

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(200):
        file.write(texts[number % 2])
    over.set()
    reader.join()
    assert seen <= set(texts)


def test_what_a_killed_process_left_is_replaced_and_a_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".x.prom.new").symlink_to(victim)
    TextFile(str(path)).write("a 1\n")
    assert victim.read_text() == "precious"
    assert path.read_text() == "a 1\n"
    assert not path.is_symlink()


def test_after_its_removal_it_does_not_come_back(path: Path) -> None:
    file = TextFile(str(path))
    file.write("a 1\n")
    file.remove()
    file.write("a 2\n")
    assert list(path.parent.iterdir()) == []
    file.remove()


def test_a_directory_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        TextFile(str(tmp_path / "none" / "x.prom")).write("")


def test_a_full_disk_leaves_the_previous_text_and_nothing_else(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = TextFile(str(path))
    file.write("a 1\n")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fchmod", full)
        with pytest.raises(OSError, match="No space left"):
            file.write("a 2\n")
    assert (path.read_text(), list(path.parent.iterdir())) == ("a 1\n", [path])
    file.write("a 2\n")
    assert path.read_text() == "a 2\n"
