# SPDX-License-Identifier: Apache-2.0
"""The store as the executor sees it: the database in a thread of its own, since an SQLite connection belongs to one.

Calls are done in the order they were made. A caller that is cancelled does not stop a transaction that has begun: it
is finished, or undone, as if the caller had waited.

The history is in memory as well, as the text of its rows: each user may read it, and no write of the record waits
behind such a read.

Snapshots and configs hold pull secrets and password hashes: hence the file is 0600 in a directory 0700, what is
deleted is overwritten (``secure_delete``), and nothing temporary goes to the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from nodeagent.errors import AgentError, Terminal
from nodeagent.host.store.database import HISTORY_LIMIT, Database
from nodeagent.host.store.opening import open_copy, open_database
from nodeagent.reasons import Reason
from nodeagent.update.ports.store import HistoryEntry

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _on_thread(
    method: Callable[Concatenate[Database, _P], _T],
) -> Callable[Concatenate[SqliteStore, _P], Coroutine[Any, Any, _T]]:
    """Return ``method`` as a method of the store, which runs it in the thread of the database."""

    @wraps(method)
    async def call(self: SqliteStore, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await self._in_thread(method, self._opened(), *args, **kwargs)

    return call


def _changes_history(
    method: Callable[Concatenate[Database, _P], None],
) -> Callable[Concatenate[SqliteStore, _P], Coroutine[Any, Any, None]]:
    """As ``_on_thread``, for a method that changes the history."""

    @wraps(method)
    async def call(self: SqliteStore, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        database = self._opened()

        def work() -> None:
            try:
                method(database, *args, **kwargs)
            finally:
                # In the thread, because a caller that is cancelled does not stop the transaction.
                self._read_history(database)

        await self._in_thread(work)

    return call


class SqliteStore:
    """Fulfils ``ports.Store``, and keeps the local lease. ``open`` before anything else, ``close`` at the end."""

    def __init__(self, path: str | Path, *, copy: bool = False) -> None:
        """With ``copy``, the store is a copy in memory, which is lost at the end."""
        self._path = Path(path)
        self._open = open_copy if copy else open_database
        self._stack = ExitStack()
        self._database: Database | None = None
        self._thread: ThreadPoolExecutor | None = None
        # The rows of the history, newest first. None: they could not be read.
        self._history: Sequence[str] | None = None

    async def open(self) -> None:
        """Raises what ``opening.open_database`` does."""
        # One thread: it owns the connection, and keeps the calls in order.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        try:
            self._database = await self._in_thread(self._stack.enter_context, self._open(self._path))
            await self._in_thread(self._read_history, self._database)
        # Also after a cancellation: otherwise the thread and the lock of the file would stay.
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        if self._thread is None:
            return
        # Not as the other calls: one that is cancelled while another is still in the thread would never begin, and the
        # file would stay open and locked.
        closed = self._thread.submit(self._stack.close)
        self._database, self._history = None, None
        self._thread.shutdown(wait=False)
        self._thread = None
        await asyncio.shield(asyncio.wrap_future(closed))

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Listed one by one: the type checker knows their signatures, and a helper of the database stays private to it.
    load = _on_thread(Database.load)
    save = _on_thread(Database.save)
    request = _on_thread(Database.request)
    keep_request = _on_thread(Database.keep_request)
    drop_request = _on_thread(Database.drop_request)
    begin = _on_thread(Database.begin)
    set_record_aside = _on_thread(Database.set_record_aside)
    put_config = _on_thread(Database.put_config)
    get_config = _on_thread(Database.get_config)
    config_named = _on_thread(Database.config_named)
    current = _on_thread(Database.current)
    previous = _on_thread(Database.previous)
    fetched = _on_thread(Database.fetched)
    keep_fetched = _on_thread(Database.keep_fetched)
    remember = _on_thread(Database.remember)
    remembered = _on_thread(Database.remembered)
    keep_originals = _on_thread(Database.keep_originals)
    original = _on_thread(Database.original)
    forget_originals = _on_thread(Database.forget_originals)
    made_dirs = _on_thread(Database.made_dirs)
    add_made_dirs = _on_thread(Database.add_made_dirs)
    promote = _changes_history(Database.promote)
    close_update = _changes_history(Database.close_update)
    end_trail = _changes_history(Database.end_trail)
    lease = _on_thread(Database.lease)
    take_lease = _on_thread(Database.take_lease)
    write_lease = _on_thread(Database.write_lease)
    drop_lease = _on_thread(Database.drop_lease)
    note = _on_thread(Database.note)
    keep_note = _on_thread(Database.keep_note)

    async def history(self, limit: int, skip: int = 0) -> Sequence[HistoryEntry]:
        database, rows = self._opened(), self._history
        if rows is None:
            # Damaged: this raises why.
            rows = await self._in_thread(database.history_rows, HISTORY_LIMIT)
        # Not in the thread of the database: up to a megabyte is decoded.
        return await asyncio.to_thread(database.entries, rows[skip : skip + limit])

    def history_version(self) -> object:
        return self._history if self._history is not None else object()

    def _read_history(self, database: Database) -> None:
        """Keep the rows in memory. In the thread of the database."""
        try:
            self._history = database.history_rows(HISTORY_LIMIT)
        except AgentError:
            self._history = None

    def _opened(self) -> Database:
        # A task that ends late may call after ``close``; it must not open the file again.
        if self._database is None:
            raise Terminal(f"the store {self._path} is not open", reason=Reason.STORE_CLOSED)
        return self._database

    async def _in_thread(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        assert self._thread is not None
        # In a lambda, because an executor passes no keyword arguments.
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(*args, **kwargs))
