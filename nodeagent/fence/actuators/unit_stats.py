"""What the kernel reports of one cgroup: its processes, and the bytes that it wrote and has still to write."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from nodeagent.fence.policy.disks import BlockNode

__all__ = ["dirty_bytes", "processes", "written_bytes"]

_WROTE = "wbytes="
_DIRTY = ("file_dirty", "file_writeback")


def written_bytes(cgroup: Path, disks: Sequence[BlockNode]) -> int | None:
    """Return the bytes written to the disks, from ``io.stat``.

    None if there is no such file: systemd enables the io controller of a cgroup with its first limit.
    """
    numbers = {str(disk.number) for disk in disks}
    try:
        lines = [line.split() for line in (cgroup / "io.stat").read_text().splitlines()]
    except OSError:
        return None
    words = [word for line in lines if line and line[0] in numbers for word in line[1:] if word.startswith(_WROTE)]
    return sum(int(word.removeprefix(_WROTE)) for word in words)


def dirty_bytes(cgroup: Path) -> int:
    """Return the bytes that are not on the disk yet, from ``memory.stat``; 0 if unknown.

    Data that waits behind a cap counts as under writeback.
    """
    try:
        lines = (line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        return sum(int(count) for name, count in lines if name in _DIRTY)
    except (OSError, ValueError):
        return 0


def processes(cgroup: Path) -> list[int]:
    """Return the processes of the cgroup and of those below it."""
    found: list[int] = []
    for file in cgroup.rglob("cgroup.procs"):
        with suppress(OSError, ValueError):
            found += map(int, file.read_text().split())
    return found
