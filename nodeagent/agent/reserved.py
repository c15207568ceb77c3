"""A lease that is promised to somebody: nobody of ours takes it before, whatever else waits for it."""

from __future__ import annotations

from nodeagent.core.update.ports import Holder, Lease
from nodeagent.errors import Refused

__all__ = ["ReservedLease"]


class ReservedLease:
    """Fulfils ``ports.Lease``. What is held already stays held: a reservation is about the next one."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._for = ""
        self._words = ""
        self.backend = lease.backend

    def reserve(self, operation: str, words: str) -> None:
        """``words`` are what another one is refused with; "" for an operation takes the reservation back."""
        self._for, self._words = operation, words

    async def acquire(self, holder: str, operation: str, reason: str) -> None:
        if self._for not in ("", operation):
            raise Refused(self._words, reason="LeaseHeld")
        await self._lease.acquire(holder, operation, reason)

    async def check(self, operation: str, *, need: float = 0.0, offline: bool = False) -> None:
        await self._lease.check(operation, need=need, offline=offline)

    async def before_reboot(self, operation: str, cover: float) -> None:
        await self._lease.before_reboot(operation, cover)

    async def extend(self, operation: str, seconds: float | None) -> None:
        await self._lease.extend(operation, seconds)

    async def release(self, operation: str) -> None:
        await self._lease.release(operation)

    async def holder(self) -> Holder | None:
        return await self._lease.holder()
