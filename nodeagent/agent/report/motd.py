# SPDX-License-Identifier: Apache-2.0
"""The message of the day as a sink of the report: a file that pam_motd shows at each log-in.

It is written after events, at most once a second, and there is none while the host is well or the daemon is stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

from nodeagent import log
from nodeagent.core.display import with_times
from nodeagent.core.once import Once
from nodeagent.host.fs.text_file import TextFile
from nodeagent.report.motd import motd
from nodeagent.report.status import Status
from nodeagent.tasks import pause
from nodeagent.update.ports.events import Event

MOTD: Final = "/run/motd.d/50-nodeagent"

# Seconds between two writes, and until a write that failed is tried again without a new message.
PAUSE: Final = 1.0
RETRY: Final = 60.0


class MotdFile:
    """Writes the message to ``path``, in the time zone of the host."""

    def __init__(self, path: str) -> None:
        self._file = TextFile(path)
        # None: the file of a previous process may be there.
        self._text: str | None = None
        self._wake = asyncio.Event()
        self._failed = Once[str]()

    def sink(self, _event: Event, status: Status) -> None:
        text = motd(status)
        if text != self._text:
            self._text = text
            self._wake.set()

    async def run(self) -> None:
        """Write until cancelled, then remove the file."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                written = await self._try(self._write, self._text or "")
                await asyncio.sleep(PAUSE)
                if not written:
                    await pause(RETRY, self._wake)
                    self._wake.set()
        finally:
            await self._try(lambda _: self._file.remove(), "")

    async def _try(self, work: Callable[[str], None], text: str) -> bool:
        try:
            await asyncio.to_thread(work, text)
        except OSError as error:
            if self._failed.is_new(str(error)):
                log.get(__name__).warning(f"no message of the day in {self._file.path}: {error.strerror or error}")
            return False
        self._failed.forget()
        return True

    def _write(self, text: str) -> None:
        if text:
            _make_readable(Path(self._file.path).parent)
            # pam_motd shows the file as it is.
            self._file.write(with_times(text, _local))
        else:
            self._file.clear()


def _make_readable(directory: Path) -> None:
    """Make the directory, which a host without systemd-tmpfiles or log-ins lacks, independently of the umask."""
    if not directory.is_dir():
        directory.mkdir()
        directory.chmod(0o755)


def _local(stamp: str) -> str:
    return datetime.fromisoformat(stamp).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
