# SPDX-License-Identifier: Apache-2.0
"""The cache of the test hosts: what is in use stays, and it does not grow with every change of the tree."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from integration.hosts.container.image import KEPT, UNUSED_DAYS, Layer, layer, sweep

HOUR = 3600.0


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "nodeagent" / "host"


def made(kind: str, key: str, hours_ago: float = 0.0) -> Layer:
    """A layer that was used last so long ago. Making it may prune others."""
    new = layer(kind, key, lambda path: path.mkdir())
    when = time.time() - hours_ago * HOUR  # noqa: TID251 - of a file
    os.utime(new.lock.fileno(), (when, when))
    return new


def unused(kind: str, key: str, hours_ago: float = 0.0) -> Path:
    new = made(kind, key, hours_ago)
    new.lock.close()
    return new.path


def test_of_a_kind_the_newest_few_are_kept() -> None:
    others = [unused("disk-of-x", f"{number}", 20) for number in range(KEPT)]
    paths = [unused("disk", f"{number}", 20 - number) for number in range(KEPT + 2)]
    last = unused("disk", "last")
    assert [path for path in paths if path.exists()] == paths[3:]
    assert last.exists()
    assert all(path.exists() for path in others)


def test_what_killed_builds_left_is_removed(cache: Path) -> None:
    (cache / "disk-killed.unfinished").mkdir(parents=True)
    (cache / "disk-killed.unfinished.overlay/root").mkdir(parents=True)

    def build(path: Path) -> None:
        path.mkdir()
        sweep()
        assert path.exists(), "it is being built, and locked"

    layer("disk", "new", build).lock.close()
    assert sorted(path.name for path in cache.iterdir() if path.is_dir()) == ["disk-new"]


def test_what_is_in_use_is_kept() -> None:
    users = [made("disk", f"{number}", 30 * 24) for number in range(KEPT + 2)]
    unused("disk", "last")
    assert all(user.path.exists() for user in users)
    for user in users:
        user.lock.close()
    unused("disk", "very last")
    assert not any(user.path.exists() for user in users)


def test_what_was_not_used_for_long_is_removed(cache: Path) -> None:
    old, young = unused("disk", "old", UNUSED_DAYS * 24 + 1), unused("disk", "young", UNUSED_DAYS * 24 - 1)
    last = unused("disk", "last")
    assert sorted(path for path in cache.iterdir() if path.is_dir()) == sorted([young, last])
    assert not old.exists()


def test_a_layer_that_is_there_is_not_made_again() -> None:
    first = unused("disk", "a", 40)
    again = layer("disk", "a", lambda path: pytest.fail("made again"))
    assert again.path == first
    assert os.fstat(again.lock.fileno()).st_mtime > time.time() - HOUR  # noqa: TID251 - of a file
    again.lock.close()
