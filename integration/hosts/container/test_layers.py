# SPDX-License-Identifier: Apache-2.0
"""Layers of the cache, as workers share them that start together and keep what they got."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import TextIO

import pytest

from integration.hosts.container.image import layer

WORKERS = 4
PROGRAM = """\
import sys, time
from integration.hosts.container.image import layer

def build(path):
    time.sleep(1)
    path.mkdir()
    print("built", end=" ", flush=True)

kept = layer("test", "key", build)
print(kept.path.name, flush=True)
sys.stdin.read()
"""


def test_one_builds_and_all_have_it_while_the_others_keep_it(tmp_path: Path) -> None:
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    argv = [sys.executable, "-c", PROGRAM]
    workers = [
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        for _ in range(WORKERS)
    ]
    said = [worker.stdout.readline() for worker in workers if worker.stdout]
    for worker in workers:
        worker.communicate(timeout=30)
    assert sorted(said) == ["built test-key\n", *["test-key\n"] * (WORKERS - 1)]


def test_no_wait_for_a_lock_that_another_process_may_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who built it shares it for as long as a run: seen as a worker that waited for twenty minutes."""
    asked: list[int] = []
    flock = fcntl.flock

    def noted(file: TextIO, how: int) -> None:
        asked.append(how)
        flock(file, how)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(fcntl, "flock", noted)
    layer("test", "key", Path.mkdir).lock.close()
    alone = [how for how in asked if how & fcntl.LOCK_EX]
    assert alone
    assert all(how & fcntl.LOCK_NB for how in alone)
