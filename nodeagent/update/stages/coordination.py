# SPDX-License-Identifier: Apache-2.0
"""The right to disrupt this node, shared with other hosts and other programs.

``Coordination`` acquires in this order: slot of the pool, node lease, other actors on the node, the guards. It releases
in reverse, and only what it may have acquired. While no slot is free, nothing else is asked. Updates and maintenances
use the same object, so that there is one owner of the lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from nodeagent.core.backoff import jittered
from nodeagent.errors import AgentError, OutOfTurn, Refused
from nodeagent.reasons import Reason
from nodeagent.update.ports.coordination import Gates, Holder, Lease, NodeDrainer, Slots, StopGuard

# Reasons with which the right to disrupt the node was taken away. The operation ends: that was intended.
LOST: Final = frozenset({Reason.LEASE_LOST, Reason.LEASE_GIVEN_BACK, Reason.SLOT_LOST})

# This is not in LOST: a lease that ran out while the API server was away may still be free, and is acquired again.
EXPIRED: Final = Reason.LEASE_EXPIRED

# Seconds between two reads of the lease while this agent does not use it.
POLL: Final = 60.0


@dataclass(frozen=True, slots=True)
class Operation:
    """Work that disrupts this node. A restarted agent continues under the same ``id``, which is that of an update, or
    "KIND.ID" for other work.

    ``queued``: it waits for a slot and other actors. A maintenance does not: an operator started it, so that
    it begins when the lease is free and checks other actors before its own steps. ``stops_node``: it drains or stops
    the node, so the guards must permit it. ``stops_pods``: it stops the pods of the node, and not only etcd or a static
    pod. ``keeps``: after a refusal it keeps what it holds, because the node is half-way between two configs.
    ``options`` are what its operator requested of features, by name.
    """

    id: str
    holder: str
    reason: str
    queued: bool = True
    stops_node: bool = False
    stops_pods: bool = False
    keeps: bool = False
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class Coordination:
    """Slots and gates are None where nothing is configured.

    ``report`` receives the holder of the lease after each call that may have changed it.
    """

    lease: Lease
    _: KW_ONLY
    slot: Slots | None = None
    staging_slot: Slots | None = None
    gates: Gates | None = None
    guards: Sequence[StopGuard] = ()
    node: NodeDrainer | None = None
    report: Callable[[Holder | None], None] = lambda _: None
    _reserved_for: str = field(default="", init=False)
    _refusal: str = field(default="", init=False)
    # The operation that is known to hold nothing. After a restart that is not known of any.
    _empty: str = field(default="", init=False)

    def reserve(self, operation: str, refusal: str) -> None:
        """Refuse the lease to every other operation from now on, with ``refusal`` as the message.

        A lease that is held stays held. "" for ``operation`` ends the reservation.
        """
        self._reserved_for, self._refusal = operation, refusal

    async def acquire(self, operation: Operation, permit: Callable[[], Awaitable[None]] | None = None) -> None:
        """Acquire everything. After ``Refused`` nothing is held, except by an operation that keeps it.

        ``permit`` raises ``Refused`` as well. It runs when nothing else refuses the operation, and before a slot is
        taken: it may last minutes. Raises ``Refused`` and what the ports raise. Acquiring it again is harmless.
        """
        # A planned maintenance comes before the next update, although the lease is still free.
        if self._reserved_for not in ("", operation.id):
            raise Refused(self._refusal, reason=Reason.LEASE_HELD)
        try:
            await self._acquire(operation, permit)
        except Refused as error:
            # A refused operation keeps nothing that others wait for, unless it left the node half-way.
            left = operation.queued and not operation.keeps and error.reason not in LOST
            if left and self._empty != operation.id:
                await self.release(operation)
                self._empty = operation.id
            raise

    async def _acquire(self, operation: Operation, permit: Callable[[], Awaitable[None]] | None) -> None:
        if operation.queued:
            # Nothing is taken yet: a slot that waits for something else is lost to other nodes.
            if self.slot is not None:
                await self.slot.look()
            if self.slot is not None or self.gates is not None or permit is not None:
                await self.check_free(operation.id)
            await self.check_others(stops_node=operation.stops_node)
            await self.permit_begin(operation)
            if permit is not None:
                await permit()
            if self.slot is not None:
                await self._acquire_slot(self.slot, operation)
        self._empty = ""
        await self._acquire_lease(operation)
        if operation.queued:
            # An actor that respects the lease stays away from here on. One that began before shows now.
            await self.check_others(stops_node=operation.stops_node)
            await self.permit_begin(operation)
        # Machine controllers delete machines without a lease.
        if self.gates is not None:
            await self.gates.hold_machine()

    async def _acquire_slot(self, slots: Slots, operation: Operation) -> None:
        # Without an answer it may be held nevertheless.
        before, self._empty = self._empty, ""
        try:
            await slots.acquire(operation.holder, operation.id, operation.reason)
        except OutOfTurn:
            self._empty = before
            raise

    async def recheck(self, operation: Operation, *, need: float = 0.0) -> None:
        """Check everything again, right before an irreversible step. ``need`` as in ``Lease.check``."""
        await self.lease.check(operation.id, need=need)
        # A maintenance has no slot to check.
        if operation.queued:
            await self.check_slot(operation.id)
        await self.check_others(stops_node=operation.stops_node)

    async def release(self, operation: Operation, cordons: Collection[str] = ()) -> None:
        """Release everything but the staging slot, in reverse, after the cordons that these operations made.

        Releasing it again is harmless. Raises ``Refused`` (``LeaseHeld``) while another operation holds the lease of a
        cordoned node: the cordon may serve that operation as well.
        """
        if self.node is not None and cordons:
            await self.check_free(operation.id, "; the node stays cordoned until then")
            for cordon in dict.fromkeys(cordons):
                await _ignore_missing_node(self.node.uncordon(cordon))
        if self.gates is not None:
            await _ignore_missing_node(self.gates.free_machine())
        # The slot comes last: another node may begin only when this one is free.
        await self.lease.release(operation.id)
        await self.report_holder()
        if operation.queued and self.slot is not None:
            await self.slot.release(operation.id)

    async def check_others(self, *, stops_node: bool) -> None:
        """Raise ``Refused`` while another actor works on the node, or a guard needs it."""
        if self.gates is not None:
            await self.gates.check()
        if stops_node:
            await self.permit_stop()

    # The lease.

    async def check_free(self, operation: str, detail: str = "") -> None:
        """Raise ``Refused`` (``LeaseHeld``) if another operation holds the lease."""
        holder = await self.lease.holder()
        if holder is not None and holder.operation != operation:
            since = f" since {holder.since}" if holder.since else ""
            purpose = f" ({holder.reason})" if holder.reason else ""
            raise Refused(f"{holder.name} holds the lease{since}{purpose}{detail}", reason=Reason.LEASE_HELD)

    async def extend_lease(self, operation: str, seconds: float | None) -> None:
        await self.lease.extend(operation, seconds)
        await self.report_holder()

    async def cover_reboot(self, operation: str, seconds: float) -> None:
        """Make the lease last ``seconds`` from now, also while the host is down."""
        await self.lease.before_reboot(operation, seconds)
        await self.report_holder()

    async def lease_was_stolen(self, operation: str) -> bool:
        """Return whether another operation holds the lost lease. Otherwise an operator cancelled this one."""
        try:
            holder = await self.lease.holder()
        except AgentError:
            return False
        return holder is not None and holder.operation != operation

    # Slots.

    async def acquire_staging_slot(self, operation: Operation) -> None:
        if self.staging_slot is not None:
            # Nothing is staged while another holder has the node, so no slot is taken for it either.
            await self.check_free(operation.id)
            await self.staging_slot.acquire(operation.holder, operation.id, operation.reason)

    async def release_staging_slot(self, operation: str) -> None:
        if self.staging_slot is not None:
            await self.staging_slot.release(operation)

    async def check_slot(self, operation: str) -> None:
        if self.slot is not None:
            await self.slot.check(operation)

    # The guards.

    async def permit_begin(self, operation: Operation) -> None:
        """Raise ``Refused`` if a guard needs the pods that ``operation`` stops."""
        for guard in self.guards if operation.stops_pods else ():
            await guard.permit_begin(operation.reason, operation.options)

    async def permit_stop(self) -> None:
        for guard in self.guards:
            await guard.permit_stop()

    async def before_stop(self) -> None:
        """Check once more that the node may stop, and hand over what others need of it."""
        for guard in self.guards:
            await guard.before_stop()

    # Reporting.

    async def report_holder(self) -> None:
        """Report who holds the lease. Nothing is reported while that cannot be read."""
        # The status keeps the last known holder, because an API server that is away says nothing about the lease.
        with suppress(AgentError):
            self.report(await self.lease.holder())

    async def poll_holder(self, random: Callable[[], float]) -> None:
        """Report the holder without end, for a lease that other programs take. ``random`` spreads hosts of a fleet."""
        while True:
            await self.report_holder()
            await asyncio.sleep(jittered(POLL, random()))

    async def _acquire_lease(self, operation: Operation) -> None:
        try:
            await self.lease.acquire(operation.holder, operation.id, operation.reason)
        except Refused:
            await self.report_holder()
            raise
        await self.report_holder()


async def _ignore_missing_node(work: Awaitable[None]) -> None:
    """Await ``work``. A Node that was deleted took its cordon and its annotations with it."""
    try:
        await work
    except Refused as error:
        if error.reason != Reason.NODE_UNKNOWN:
            raise
