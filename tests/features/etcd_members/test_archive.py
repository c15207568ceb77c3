# SPDX-License-Identifier: Apache-2.0
"""How the data of a member are put aside."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.core.etcd.data_directory import DataDirectory
from nodeagent.errors import Terminal
from nodeagent.features.etcd_members.archive import archive
from nodeagent.host.etcd.data_directory import read_data_directory
from tests.host.etcd.test_data_directory import write


def test_data_are_put_aside_under_a_name_of_their_own(tmp_path: Path) -> None:
    now = "2026-03-01T10:20:30.123Z"
    assert archive(tmp_path, now) == ""
    paths = []
    for content in (b"1", b"2"):
        write(tmp_path, content)
        paths.append(archive(tmp_path, now))
    assert paths == [f"{tmp_path}/member-archive-20260301T102030", f"{tmp_path}/member-archive-20260301T102030-1"]
    kept = [next((Path(path) / "wal").iterdir()).read_bytes() for path in paths]
    assert kept == [b"1", b"2"]
    assert read_data_directory(tmp_path) == DataDirectory()


def test_a_link_is_not_renamed(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "member").symlink_to("disk")
    with pytest.raises(Terminal) as raised:
        archive(tmp_path, "2026-03-01T10:20:30.123Z")
    assert raised.value.reason == "LinkRefused"
