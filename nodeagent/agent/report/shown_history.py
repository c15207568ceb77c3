# SPDX-License-Identifier: Apache-2.0
"""The history as clients read it: encoded once for each change of it, however often it is read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from nodeagent.update.history.entry import entry_to_dict, index_of
from nodeagent.update.ports.store import HistoryEntry, Store

# Entries that one call returns, whatever the client requests: more than the store keeps.
MAX_HISTORY: Final = 1000


@dataclass(eq=False)
class ShownHistory:
    store: Store
    _version: object = field(default=None, init=False)
    _ids: Sequence[str] = field(default=(), init=False)
    _entries: Sequence[str] = field(default=(), init=False)
    _whole: str = field(default="", init=False)
    # Clients that come during the encoding wait for it instead of repeating it.
    _encoding: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def text(self, limit: int) -> str:
        """Return the newest entries as ``nodeagent/history/v1``."""
        await self._encode()
        return self._whole if limit >= len(self._entries) else _join(self._entries[:limit])

    async def entry(self, update_id: str, running: str) -> HistoryEntry | None:
        """Return the entry of an update, None for ``running``, the one that has not ended. Raises as ``find_update``.

        ``running`` is "" if no update is under way.
        """
        await self._encode()
        if not running:
            index = index_of(self._ids, update_id)
        elif (index := index_of([running, *self._ids], update_id) - 1) < 0:
            return None
        # The store has read its rows when this call first waits, so that the index is the one of this version.
        (entry,) = await self.store.history(1, index)
        return entry

    async def _encode(self) -> None:
        async with self._encoding:
            if self._version == (version := self.store.history_version()):
                return
            entries = await self.store.history(MAX_HISTORY)
            self._ids = [entry.update_id for entry in entries]
            self._entries = await asyncio.to_thread(_encoded, entries)
            self._whole = await asyncio.to_thread(_join, self._entries)
            self._version = version


def _encoded(entries: Sequence[HistoryEntry]) -> Sequence[str]:
    return [json.dumps(entry_to_dict(entry)) for entry in entries]


def _join(entries: Sequence[str]) -> str:
    return f'{{"schema": "nodeagent/history/v1", "updates": [{", ".join(entries)}]}}'
