"""How much that was written to a disk may wait in memory (``/sys/class/bdi/DISK``): bounded, and put back.

A commit of ext4's journal waits for the data of each file that it allocated blocks for (ordered mode), and each fsync
of etcd is such a commit. So what rpm-ostree wrote and did not sync yet stops etcd for as long as the disk takes for it,
and a cap makes that longer. With the bound whoever writes waits instead, a little at a time. It concerns everybody who
writes to that disk.

``max_bytes``, ``max_ratio_fine`` and ``strict_limit`` are there since Linux 6.2 (Documentation/ABI/testing/
sysfs-class-bdi). A bound in bytes is kept as millionths of what may be dirty at all, so those are noted and put back.
Without ``strict_limit`` it would count only once the machine as a whole has many dirty pages.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from nodeagent.core.disks import DeviceNumber
from nodeagent.errors import AgentError, Retryable, Terminal
from nodeagent.host.faults import translated
from nodeagent.host.undo import Undo

__all__ = ["BDIS", "DirtyPages", "recover"]

BDIS = Path("/sys/class/bdi")
_KEY = "dirty-"
_MOST, _STRICT, _PART = "max_bytes", "strict_limit", "max_ratio_fine"
_NOTED = (_PART, _STRICT)


class DirtyPages:
    """Of the file systems on one disk, which ``number`` is of. Errors are those of ``faults``, and below."""

    def __init__(self, number: DeviceNumber, undo: Undo, root: Path = BDIS) -> None:
        self._key = f"{_KEY}{number}"
        self._name = f"what may be dirty of disk {number}"
        self._directory = root / str(number)
        self._undo = undo

    async def bound(self, most: int) -> None:
        """``most`` bytes. ``Terminal`` (``NoDirtyLimit``) where the kernel cannot."""
        if not await asyncio.to_thread((self._directory / _STRICT).exists):
            raise Terminal("dirty pages of one disk cannot be bounded, before Linux 6.2", reason="NoDirtyLimit")
        new = self._key not in await self._undo.load()
        if new:
            await self._undo.save(self._key, json.dumps(await asyncio.to_thread(self._read)))
        try:
            await asyncio.to_thread(self._write, {_STRICT: "1"})
        except AgentError:
            if new:  # /sys is read-only: nothing was changed, and nothing could be put back
                await self._undo.clear(self._key)
            raise
        await asyncio.to_thread(self._write, {_MOST: str(most)})

    async def restore(self) -> None:
        """As it was found; nothing happens without a ``bound``. ``QueueNotRestored`` if it cannot be."""
        note = (await self._undo.load()).get(self._key)
        if note is None:
            return
        try:
            found = {name: str(int(json.loads(note)[name])) for name in _NOTED}
        except (ValueError, TypeError, LookupError) as error:
            raise Terminal(f"the note on {self._name} cannot be read", reason="QueueNotRestored") from error
        if await asyncio.to_thread(self._directory.exists):  # or the disk is gone, and all of this with it
            await asyncio.to_thread(self._write, found)
            if await asyncio.to_thread(self._read) != found:
                raise Retryable(f"{self._name} is not as it was found", reason="QueueNotRestored")
        await self._undo.clear(self._key)

    def _read(self) -> dict[str, str]:
        with translated("read", self._name):
            return {name: (self._directory / name).read_text().strip() for name in _NOTED}

    def _write(self, values: dict[str, str]) -> None:
        with translated("set", self._name):
            for name, value in values.items():
                (self._directory / name).write_text(value)


async def recover(undo: Undo, root: Path = BDIS) -> None:
    """First thing at start: puts back what a killed agent left."""
    for key in await undo.load():
        if key.startswith(_KEY):
            major, _, minor = key.removeprefix(_KEY).partition(":")
            await DirtyPages(DeviceNumber(int(major), int(minor)), undo, root).restore()
