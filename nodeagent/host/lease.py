# SPDX-License-Identifier: Apache-2.0
"""The local lease of a host alone.

It is a row of the store, so it outlives kills and reboots: an update goes on after its reboot, and a
maintenance is not ended by one. For the same reason it does not expire: only its holder releases it. ``extend`` records
the expected end.
"""

from __future__ import annotations

from dataclasses import replace

from nodeagent.core.times import add_seconds
from nodeagent.errors import Refused
from nodeagent.host.store.store import SqliteStore
from nodeagent.reasons import Reason
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.host import Clock


class LocalLease:
    """Implements ``ports.Lease``. ``check`` and ``release`` recognise the holder by its operation."""

    backend = "local"

    def __init__(self, store: SqliteStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def acquire(self, holder: str, operation: str, reason: str) -> None:
        """Take the lease. A holder that acquires it again keeps the first ``since`` and reason."""
        # The store gives a free lease and reads a held one in one transaction, so of two operations one gets it.
        has = await self._store.take_lease(Holder(holder, operation, reason, self._clock.now()))
        if (has.name, has.operation) != (holder, operation):
            raise Refused(_describe(has), reason=Reason.LEASE_HELD)

    async def check(self, operation: str, *, need: float = 0.0, offline: bool = False) -> None:  # noqa: ARG002
        has = await self._store.lease()
        if has is None:
            raise Refused("the lease on this host was released by another client", reason=Reason.LEASE_LOST)
        # By the operation, not by the name: an update and a maintenance of the same agent are two holders.
        if has.operation != operation:
            raise Refused(_describe(has), reason=Reason.LEASE_LOST)

    async def extend(self, operation: str, seconds: float | None) -> None:
        await self.check(operation)
        # The check and this read are two transactions, between which the lease may be released.
        if (has := await self._store.lease()) is not None:
            expires = add_seconds(self._clock.now(), seconds) if seconds is not None else ""
            await self._store.write_lease(replace(has, expires=expires))

    async def before_reboot(self, operation: str, cover: float) -> None:  # noqa: ARG002 - it lasts anyway
        await self.check(operation)

    async def release(self, operation: str) -> None:
        await self._store.drop_lease(operation)

    async def holder(self) -> Holder | None:
        return await self._store.lease()


def _describe(has: Holder) -> str:
    purpose = f" ({has.reason})" if has.reason else ""
    return f"{has.name} holds the lease on this host since {has.since} for {has.operation}{purpose}"
