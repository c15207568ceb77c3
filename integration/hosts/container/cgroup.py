# SPDX-License-Identifier: Apache-2.0
"""One cgroup (v2) for each host, so that hosts do not meet in one."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from integration.hosts.errors import Unavailable

GONE_TIMEOUT = 5.0  # seconds that a killed cgroup may take to empty


def path_of(host: str) -> Path:
    """Return the cgroup of a host, below the one of this process. Raises Unavailable without cgroup v2."""
    return _own() / f"nodeagent-{host}"


def remove(path: Path) -> None:
    """Kill whatever is left in the cgroup and remove it with all below it."""
    if not path.is_dir():
        return
    with contextlib.suppress(FileNotFoundError):
        (path / "cgroup.kill").write_text("1")
    deadline = time.monotonic() + GONE_TIMEOUT
    while "populated 1" in (path / "cgroup.events").read_text() and time.monotonic() < deadline:
        time.sleep(0.005)
    for directory in sorted((p for p in path.rglob("*") if p.is_dir()), reverse=True):
        directory.rmdir()
    path.rmdir()


def _own() -> Path:
    mount = _mount_point()
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        hierarchy, _, path = line.split(":", 2)
        if hierarchy == "0":
            return mount / path.lstrip("/")
    raise Unavailable("this process is in no cgroup v2 hierarchy")


def _mount_point() -> Path:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, kind = line.partition(" - ")
        if kind.split()[0] == "cgroup2":
            return Path(fields.split()[4])
    raise Unavailable("no cgroup v2 hierarchy is mounted (neither unified nor hybrid), which the guest's systemd needs")
