"""The lease that we hold, as the store keeps it: through restarts and reboots. Fulfils ``kube.lease.TokenStore``."""

from __future__ import annotations

import json
from typing import Final

from nodeagent.core.config.text import plain_json
from nodeagent.core.coordination.lease import LeaseToken
from nodeagent.errors import Terminal
from nodeagent.host.store.store import SqliteStore

__all__ = ["StoredToken"]

KEY: Final = "lease-token"


class StoredToken:
    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    async def load(self) -> LeaseToken | None:
        """Raises ``Terminal`` (``StoreCorrupt``)."""
        text = await self._store.note(KEY)
        if not text:
            return None
        try:
            return LeaseToken.from_dict(plain_json.loads(text))
        except (ValueError, TypeError, KeyError) as error:
            raise Terminal(f"what the store says of the lease cannot be read: {error}", reason="StoreCorrupt") from None

    async def save(self, token: LeaseToken | None) -> None:
        await self._store.keep_note(KEY, "" if token is None else json.dumps(token.to_dict(), sort_keys=True))
