# SPDX-License-Identifier: Apache-2.0
"""A file with what an update holds, as a sink of the report: nodeagent-absent.service shows it in a boot without agent.

It is durable, other than the message of the day: a power cut in the middle of an update is the reason for it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from nodeagent import log
from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.once import Once
from nodeagent.errors import AgentError
from nodeagent.report.status import Status
from nodeagent.report.under_way import under_way
from nodeagent.tasks import pause
from nodeagent.update.ports.events import Event
from nodeagent.update.ports.host import Files
from nodeagent.update.states import Phase

# The unit names this path, whatever the setting for the store is.
PATH: Final = "/var/lib/nodeagent/under-way"

# Seconds until a write that failed is tried again without a new text.
RETRY: Final = 60.0


class UnderWayFile:
    def __init__(self, files: Files, path: str = PATH) -> None:
        self._files, self._path = files, path
        # None: the file of a previous process may be there.
        self._text: str | None = None
        self._phase: Phase | None = None
        self._wake = asyncio.Event()
        self._failed = Once[str]()

    def sink(self, _event: Event, status: Status) -> None:
        released, self._phase = self._phase is Phase.RELEASING, status.phase
        text = under_way(self._text or "", status, released=released)
        # A text that this process does not know is kept until it is decided.
        undecided = self._text is None and not text and status.phase is not Phase.IDLE and not released
        if text != self._text and not undecided:
            self._text = text
            self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                if self._text:
                    await self._files.install(self._path, RegularFile(self._text.encode(), 0o600))
                else:
                    await self._files.remove(self._path, ())
                self._failed.forget()
            except AgentError as error:
                if self._failed.is_new(error.message):
                    log.get(__name__).warning(f"{self._path} is not written: {error.message}", reason=error.reason)
                await pause(RETRY, self._wake)
                self._wake.set()
