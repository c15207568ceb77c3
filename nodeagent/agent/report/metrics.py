# SPDX-License-Identifier: Apache-2.0
"""Metrics as a sink of the report: a file for node_exporter's textfile collector.

The file is written after events, at most once a second. It is removed when the daemon stops, so that no exporter serves
values of the past. The agent does not listen on a port: the exporter of the node has one already, with the access
control of the cluster.
"""

from __future__ import annotations

import asyncio

from nodeagent import __version__, log
from nodeagent.core.once import Once
from nodeagent.errors import AgentError
from nodeagent.host.fs.text_file import TextFile
from nodeagent.host.store.database import HISTORY_LIMIT
from nodeagent.report.counters import Counters
from nodeagent.report.event_counts import observe
from nodeagent.report.exposition import render
from nodeagent.report.metrics import samples
from nodeagent.report.status import Status
from nodeagent.update.ports.events import Event, StagingAdvanced
from nodeagent.update.ports.host import Clock
from nodeagent.update.ports.store import Store
from nodeagent.update.states import Phase

# Seconds between two writes. Exporters are scraped every 15 s or less often.
PAUSE = 1.0

# Phases at whose start the history may have a new entry.
_ENDS = frozenset({Phase.IDLE, Phase.DEGRADED, Phase.RELEASING})


class Metrics:
    """Writes the metrics to ``path``; "" writes nothing."""

    def __init__(self, store: Store, clock: Clock, path: str) -> None:
        self._store = store
        self._clock = clock
        self._file = TextFile(path) if path else None
        self._status = Status()
        self._counters = Counters()
        self._ended = True
        self._wake = asyncio.Event()
        self._failed = Once[str]()

    def sink(self, event: Event, status: Status) -> None:
        self._status = status
        observe(self._counters, event, status, self._clock.monotonic())
        # Reading the history takes several queries, so it is read only when it may have a new entry.
        self._ended |= status.phase in _ENDS and not isinstance(event, StagingAdvanced)
        self._wake.set()

    async def use(self, path: str) -> None:
        """Remove the previous file, and write to ``path`` soon."""
        if path != (self._file.path if self._file is not None else ""):
            old, self._file = self._file, TextFile(path) if path else None
            # The textfile collector reports an error for a metric that two files have with the same labels.
            await self._remove(old)
            self._wake.set()

    async def run(self) -> None:
        """Write until cancelled, then remove the file."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._write()
                await asyncio.sleep(PAUSE)
        finally:
            await self._remove(self._file)

    async def _write(self) -> None:
        if self._file is None:
            return
        file = self._file
        try:
            if self._ended:
                # Cleared before the read, because an update may end during it.
                self._ended = False
                try:
                    history = await self._store.history(HISTORY_LIMIT)
                except AgentError:
                    self._ended = True
                    raise
                resting = self._status.phase in (Phase.IDLE, Phase.DEGRADED)
                self._counters.load_history(history, HISTORY_LIMIT, "" if resting else self._status.update_id)
            await asyncio.to_thread(file.write, render(samples(self._status, self._counters, __version__)))
            self._failed.forget()
        except (AgentError, OSError) as error:
            self._log_failure(file.path, error)

    async def _remove(self, file: TextFile | None) -> None:
        if file is not None:
            try:
                await asyncio.to_thread(file.remove)
            except OSError as error:
                self._log_failure(file.path, error)

    def _log_failure(self, path: str, error: AgentError | OSError) -> None:
        """Log a failure, unless the previous write failed for the same cause."""
        cause = (error.strerror if isinstance(error, OSError) else None) or str(error)
        if self._failed.is_new(cause):
            log.get(__name__).warning(f"no metrics in {path}: {cause}", path=path)
