# SPDX-License-Identifier: Apache-2.0
"""kill -9 in the middle of writing: the store opens, its parts agree, and what was reported as written is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = int(os.environ.get("NODEAGENT_CRASH_ROUNDS", "120"))


def test_killed_at_any_point() -> None:
    root = Path(__file__).parents[3]
    # Memory has no disk to wait for: more transactions, so more points to be killed at, in the same time.
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        done = subprocess.run(
            [sys.executable, "-m", "tests.host.store.crash", folder, str(ROUNDS)],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=110,
        )
        assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    print(result)
    assert result["rounds"] == ROUNDS
    assert result["updates"] > ROUNDS // 10, "next to nothing was written: the test proves little"
    assert result["hot_journals"] > 0, "no kill came in the middle of a transaction: the test proves little"
