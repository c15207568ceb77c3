# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the adapters of the fence."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.features.fence.actuators.block_queue import SysfsQueue
from tests.support.fixtures import bus, no_leaked_fds, private_bus

__all__ = ["bus", "no_leaked_fds", "private_bus"]


@pytest.fixture
def loop_device(tmp_path: Path) -> Iterator[str]:
    """Its number. Of a loop device of our own: a queue that no other program uses."""
    if os.geteuid() != 0 or not Path("/dev/loop-control").exists() or shutil.which("losetup") is None:
        pytest.skip("needs root, losetup and loop devices")
    image = tmp_path / "disk.img"
    image.write_bytes(bytes(1 << 20))
    made = subprocess.run(["losetup", "--find", "--show", str(image)], capture_output=True, text=True, timeout=20)
    if made.returncode != 0:
        pytest.skip(f"no loop device to be had: {made.stderr}")
    device = made.stdout.strip()
    number = Path(f"/sys/block/{Path(device).name}/dev").read_text().strip()
    fresh = SysfsQueue(number)
    try:
        for name, value in (("scheduler", "none"), ("nr_requests", "99"), ("nr_requests", "128")):
            fresh.write(name, value)  # an earlier test that failed may have changed them
        yield number
    finally:
        subprocess.run(["losetup", "--detach", device], check=True, timeout=20)
