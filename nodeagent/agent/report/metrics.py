"""Metrics as a sink of the report: a file for node_exporter's textfile collector, written when something happened.

At most once a second, and never while nothing happens. It is removed when the daemon stops, so that nobody takes what
was true once for what is. There is no port to listen on: the node's own exporter has one already, with whatever the
cluster wants around it.
"""

from __future__ import annotations

import asyncio

from nodeagent import __version__, log
from nodeagent.core.report.counters import Counters
from nodeagent.core.report.exposition import render
from nodeagent.core.report.metrics import samples
from nodeagent.core.report.status import Status
from nodeagent.core.update.events import Event, EventKind
from nodeagent.core.update.phase import Phase
from nodeagent.core.update.ports.host import Clock
from nodeagent.core.update.ports.store import Store
from nodeagent.errors import AgentError
from nodeagent.host.fs.text_file import TextFile
from nodeagent.host.store.database import HISTORY_LIMIT

__all__ = ["Metrics"]

PAUSE = 1.0
"""Seconds between two writes. Exporters are asked every 15 s or less often."""

_ENDS = frozenset({Phase.IDLE, Phase.DEGRADED, Phase.RELEASING})
"""Phases on entering which the history may have a new entry."""


class Metrics:
    """``path`` is "" for nothing to be written."""

    def __init__(self, store: Store, clock: Clock, path: str) -> None:
        self._store = store
        self._clock = clock
        self._file = TextFile(path) if path else None
        self._old: TextFile | None = None
        self._status = Status()
        self._counters = Counters()
        self._ended = True
        self._wake = asyncio.Event()
        self._failed = ""

    def sink(self, event: Event, status: Status) -> None:
        self._status = status
        self._counters.observe(event, status, self._clock.monotonic())
        self._ended |= status.phase in _ENDS and event.kind is not EventKind.STAGING
        self._wake.set()

    def use(self, path: str) -> None:
        """From the next write on, which is now. The file of before is removed."""
        if path != (self._file.path if self._file is not None else ""):
            self._old = self._old or self._file
            self._file = TextFile(path) if path else None
            self._wake.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._write()
                await asyncio.sleep(PAUSE)
        finally:
            await self._remove(self._old)
            await self._remove(self._file)

    async def _write(self) -> None:
        if self._old is not None:
            await self._remove(self._old)
            self._old = None
        if self._file is None:
            return
        file = self._file
        try:
            if self._ended:
                self._counters.read(await self._store.history(HISTORY_LIMIT), HISTORY_LIMIT)
                self._ended = False
            await asyncio.to_thread(file.write, render(samples(self._status, self._counters, __version__)))
            self._failed = ""
        except (AgentError, OSError) as error:
            self._say(file.path, error)

    async def _remove(self, file: TextFile | None) -> None:
        if file is not None:
            try:
                await asyncio.to_thread(file.remove)
            except OSError as error:
                self._say(file.path, error)

    def _say(self, path: str, error: AgentError | OSError) -> None:
        """Once for each way to fail: no update fails for want of metrics, and nobody wants a line a second."""
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        if why != self._failed:
            self._failed = why
            log.get(__name__).warning(f"no metrics in {path}: {why}", path=path)
