"""The local lease: who may disrupt this host, where there is no cluster to ask.

It is a row in the store, so a kill and a reboot keep it, which is the point: an update goes on after its reboot, and a
maintenance window is not ended by one. For the same reason nobody takes it when it has expired; whoever took it gives
it back. ``extend`` says until when that will be.
"""

from __future__ import annotations

from dataclasses import replace

from nodeagent.core.coordination.maintenance import add_seconds
from nodeagent.core.update.ports import Clock, Holder
from nodeagent.errors import Refused
from nodeagent.host.store.store import SqliteStore

__all__ = ["LocalLease"]


class LocalLease:
    """Fulfils ``ports.Lease``. The operation is the token: it is what ``check`` and ``release`` recognise."""

    backend = "local"

    def __init__(self, store: SqliteStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def acquire(self, holder: str, operation: str, reason: str) -> None:
        """Taking what one has already keeps the first ``since`` and reason."""
        has = await self._store.take_lease(Holder(holder, operation, reason, self._clock.now()))
        if (has.name, has.operation) != (holder, operation):
            raise Refused(_describe(has), reason="LeaseHeld")

    async def check(self, operation: str, *, need: float = 0.0, offline: bool = False) -> None:  # noqa: ARG002
        has = await self._store.lease()
        if has is None:
            raise Refused("the lease on this host was released by somebody else", reason="LeaseLost")
        if has.operation != operation:
            raise Refused(_describe(has), reason="LeaseLost")

    async def extend(self, operation: str, seconds: float | None) -> None:
        await self.check(operation)
        has = await self._store.lease()
        if has is not None:
            expires = add_seconds(self._clock.now(), seconds) if seconds is not None else ""
            await self._store.write_lease(replace(has, expires=expires))

    async def before_reboot(self, operation: str, cover: float) -> None:  # noqa: ARG002 - it lasts anyway
        await self.check(operation)

    async def release(self, operation: str) -> None:
        await self._store.drop_lease(operation)

    async def holder(self) -> Holder | None:
        return await self._store.lease()


def _describe(has: Holder) -> str:
    why = f" ({has.reason})" if has.reason else ""
    return f"{has.name} holds the lease on this host since {has.since} for {has.operation}{why}"
