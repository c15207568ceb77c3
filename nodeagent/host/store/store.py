"""The store as the executor sees it: the database in a thread of its own, since an SQLite connection belongs to one.

Calls are done in the order they were made. A caller that is cancelled does not stop a transaction that has begun: it
is finished, or undone, as if the caller had waited.

Snapshots and configs hold pull secrets and password hashes: hence the file is 0600 in a directory 0700, what is
deleted is overwritten (``secure_delete``), and nothing temporary goes to the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.core.coordination.maintenance import Maintenance
from nodeagent.core.update.apply_request import ApplyRequest
from nodeagent.core.update.ports.coordination import Holder
from nodeagent.core.update.ports.store import HistoryEntry, Snapshot
from nodeagent.core.update.record import Record
from nodeagent.errors import Terminal
from nodeagent.host.store.database import Database
from nodeagent.host.store.opening import open_database
from nodeagent.reasons import Reason

__all__ = ["SqliteStore"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class SqliteStore:
    """Fulfils ``ports.Store``, and keeps the local lease and the maintenance. ``open`` before anything else, ``close``
    at the end."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._stack = ExitStack()
        self._database: Database | None = None
        self._thread: ThreadPoolExecutor | None = None

    async def open(self) -> None:
        """Raises what ``store_open.open_database`` does."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        try:
            self._database = await self._in_thread(self._stack.enter_context, open_database(self._path))
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        if self._thread is None:
            return
        try:
            await self._in_thread(self._stack.close)
        finally:
            self._database = None
            self._thread.shutdown(wait=False)  # it has nothing left to do
            self._thread = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def load(self) -> Record:
        return await self._call(Database.load)

    async def save(self, record: Record) -> None:
        await self._call(Database.save, record)

    async def request(self) -> ApplyRequest | None:
        return await self._call(Database.request)

    async def keep_request(self, request: ApplyRequest) -> None:
        await self._call(Database.keep_request, request)

    async def drop_request(self, digest: str) -> None:
        await self._call(Database.drop_request, digest)

    async def begin(self, record: Record) -> None:
        await self._call(Database.begin, record)

    async def set_record_aside(self, reason: str, message: str) -> Record:
        """For a record that ``load`` cannot give: it is kept as a note, and a degraded one takes its place."""
        return await self._call(Database.set_record_aside, reason, message)

    async def put_config(self, source: ConfigSource) -> None:
        await self._call(Database.put_config, source)

    async def get_config(self, digest: str) -> ConfigSource:
        return await self._call(Database.get_config, digest)

    async def current(self) -> str:
        return await self._call(Database.current)

    async def previous(self) -> str:
        return await self._call(Database.previous)

    async def fetched(self) -> ConfigSource | None:
        """The config that a cluster named last; None if it named none."""
        return await self._call(Database.fetched)

    async def keep_fetched(self, source: ConfigSource | None) -> None:
        """It stays until another one takes its place, whatever becomes of updates."""
        await self._call(Database.keep_fetched, source)

    async def remember(self, update_id: str, snapshots: Sequence[Snapshot]) -> None:
        await self._call(Database.remember, update_id, snapshots)

    async def remembered(self, update_id: str) -> Sequence[Snapshot]:
        return await self._call(Database.remembered, update_id)

    async def keep_originals(self, snapshots: Sequence[Snapshot]) -> None:
        """In one transaction: each costs several syncs."""
        await self._call(Database.keep_originals, snapshots)

    async def original(self, key: str) -> Snapshot | None:
        return await self._call(Database.original, key)

    async def forget_originals(self, keys: Sequence[str]) -> None:
        await self._call(Database.forget_originals, keys)

    async def made_dirs(self) -> Sequence[str]:
        return await self._call(Database.made_dirs)

    async def add_made_dirs(self, paths: Sequence[str]) -> None:
        await self._call(Database.add_made_dirs, paths)

    async def promote(self, record: Record, current: str, entry: HistoryEntry) -> None:
        await self._call(Database.close_update, record, entry, current)

    async def close_update(self, record: Record, entry: HistoryEntry) -> None:
        await self._call(Database.close_update, record, entry)

    async def history(self, limit: int) -> Sequence[HistoryEntry]:
        """The newest first."""
        return await self._call(Database.history, limit)

    async def lease(self) -> Holder | None:
        return await self._call(Database.lease)

    async def take_lease(self, wanted: Holder) -> Holder:
        return await self._call(Database.take_lease, wanted)

    async def write_lease(self, holder: Holder) -> None:
        """Only if its operation has the lease."""
        await self._call(Database.write_lease, holder)

    async def note(self, key: str) -> str:
        """What was kept under this name; "" for nothing."""
        return await self._call(Database.note, key)

    async def keep_note(self, key: str, text: str) -> None:
        """ "" removes it."""
        await self._call(Database.keep_note, key, text)

    async def drop_lease(self, operation: str) -> None:
        await self._call(Database.drop_lease, operation)

    async def maintenance(self) -> Maintenance | None:
        return await self._call(Database.maintenance)

    async def keep_maintenance(self, wanted: Maintenance | None) -> None:
        await self._call(Database.keep_maintenance, wanted)

    async def _call(self, method: Callable[Concatenate[Database, _P], _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        if self._database is None:
            raise Terminal(f"the store {self._path} is not open", reason=Reason.STORE_CLOSED)
        return await self._in_thread(method, self._database, *args, **kwargs)

    async def _in_thread(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        assert self._thread is not None
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(*args, **kwargs))
