# SPDX-License-Identifier: Apache-2.0
"""Bounded reads of files whose path others chose."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodeagent.host.fs.read_inside import read_regular


def test_a_regular_file_and_a_link_to_one_are_read_up_to_the_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "file", 5) == read_regular(str(tmp_path / "link"), 5) == b"12345"
    with pytest.raises(OSError, match="it has more than 4 bytes"):
        read_regular(tmp_path / "file", 4)


def test_anything_else_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="it is no regular file"):
            read_regular(path, 10)
    with pytest.raises(IsADirectoryError):
        read_regular(tmp_path, 10)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none", 10)


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(IsADirectoryError):
            read_regular(tmp_path, 10)
    assert len(os.listdir("/proc/self/fd")) == before
