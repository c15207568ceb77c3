# SPDX-License-Identifier: Apache-2.0
"""Slots of a pool on an API server (``decide/pool.py``). Implements ``ports.Slots``.

A slot is deleted when it is released, or stays with the time of the release if the pool has, or had, a pause. Looking
for one needs one request, taking one three (with a zone two more), checking and releasing one two each; there is none
in between, since a slot does not expire. A write without an answer is found by the uid of the node at the next
``acquire`` or ``release``: no slot is left behind.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from nodeagent.core.coordination.kube_objects import LeaseObject
from nodeagent.core.coordination.kube_time import Uncertain
from nodeagent.core.coordination.lease import PREFIX, Claim, HostIdentity, read_lease
from nodeagent.core.enumerated import enumerated
from nodeagent.door import FleetHost, FleetSlots
from nodeagent.errors import AgentError, OutOfTurn, Refused, Retryable, Terminal
from nodeagent.features.slots.decide.limits import goes_first, other_zones, zone_of_slot, zone_refusal
from nodeagent.features.slots.decide.order import RolloutOrder
from nodeagent.features.slots.decide.pool import (
    RELEASED,
    SIZE,
    VERDICT,
    ZONE,
    Slot,
    SlotKind,
    SlotPool,
    free_indices,
    held_by,
    new_slot,
    pool_pause,
    read_slots,
    released,
    taken,
)
from nodeagent.features.slots.decide.turn import UNCHECKED, not_passed, passed, unchecked
from nodeagent.features.slots.own_node import KubeZone
from nodeagent.features.slots.reasons import SlotReason
from nodeagent.features.slots.settings import SlotSettings
from nodeagent.features.slots.turn import KubeShare, KubeTurn
from nodeagent.kube.client import KubeClient, Object
from nodeagent.kube.decode import decoded
from nodeagent.kube.errors import Conflict, NotFound
from nodeagent.reasons import Reason
from nodeagent.update.ports.host import Clock

# Attempts while other nodes take the free slots.
WRITES: Final = 3


class KubeSlots:
    """All nodes of a pool must be configured with the same ``pool``. ``turn`` and ``zone`` are checked while a slot
    is held, before anything is disrupted."""

    def __init__(
        self,
        client: KubeClient,
        host: HostIdentity,
        pool: SlotPool,
        clock: Clock,
        *,
        namespace: str = "nodeagent",
        turn: KubeTurn | None = None,
        zone: KubeZone | None = None,
        share: KubeShare | None = None,
    ) -> None:
        self._client = client
        self._host = host
        self._pool = pool
        self._clock = clock
        self._turn = turn
        self._zone = zone
        self._share = share
        self._uid = ""
        # By uid and version of a free slot: when this agent saw it first, on the steady clock.
        self._seen: dict[tuple[str, str], float] = {}
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

    async def look(self) -> None:
        """Raise ``OutOfTurn`` as ``acquire`` if that is known already, and what the client raises."""
        slots = await self.read()
        if not self._may_be_ours(slots):
            await self._open(slots)

    async def acquire(self, holder: str, operation: str, reason: str) -> str:
        """Take a slot, or keep the slot of this node, and return its name.

        Raises ``OutOfTurn`` (``SlotHeld``, ``SlotPaused``, ``ZoneHeld``, ``PoolHalted``, ``PoolOrder``),
        ``Refused`` (``NodeUnknown``), ``Retryable`` (``SlotContended``), and what the client raises.
        """
        claim, uid = Claim(holder, operation, reason, self._host.instance), ""
        for _ in range(WRITES):
            # All slots of the pool are read each time. They are few, and a stale copy would cost two nodes at once.
            slots = await self.read()
            free = () if self._may_be_ours(slots) else await self._open(slots)
            # A Node that was created again has another uid. The slot of the former one leaves with it.
            uid = uid or await self._read_uid()
            if ours := held_by(slots, uid, self._host.instance):
                # This node has a slot already. It is taken over from another operation, which was given up or ran
                # before a restart.
                slot: Slot | None = ours[0]
                if ours[0].lease.notes.get("operation") != operation:
                    slot = await self._take(ours[0].index, ours[0], claim, uid)
                if slot is not None and await self._passes(slot):
                    return self._pool.lease(slot.index)
                continue
            by_index = {slot.index: slot for slot in slots}
            for index in free or await self._open(slots):
                slot = await self._take(index, by_index.get(index), claim, uid)
                if slot is None:
                    continue
                if await self._passes(slot):
                    return self._pool.lease(index)
                break
        raise Retryable(f"the slots of {self._pool.name} are taken as soon as free", reason=SlotReason.SLOT_CONTENDED)

    async def check(self, operation: str) -> None:
        """Raise ``Refused`` (``SlotLost``) if an admin released the slot of this operation."""
        uid = await self._read_uid()
        ours = held_by(await self.read(), uid, self._host.instance)
        if operation not in [slot.lease.notes.get("operation") for slot in ours]:
            raise Refused(f"no slot of {self._pool.name} is held for this operation", reason=Reason.SLOT_LOST)

    async def release(self, operation: str) -> None:
        """Release the slot of this operation. A slot that another operation took is left alone."""
        try:
            # That of the Node when this process took the slot.
            uid = self._uid or await self._read_uid()
        except Refused:
            # The slot was deleted together with the Node.
            return
        for _ in range(WRITES):
            ours = held_by(await self.read(), uid, self._host.instance)
            # The operation is compared, because an admin may have given the slot to another operation.
            mine = [slot for slot in ours if slot.lease.notes.get("operation") == operation]
            if not mine:
                return
            for slot in mine:
                path = f"{self._leases}/{self._pool.lease(slot.index)}"
                # The slot changed since it was read, so the next round reads it again.
                with suppress(Conflict, NotFound):
                    notes = slot.lease.notes
                    if UNCHECKED not in notes and (self._pool.pause or RELEASED in notes):
                        latest = self._client.server_clock.latest(self._clock.monotonic())
                        await self._client.patch(path, released(slot, self._host.node, latest))
                    else:
                        # If nothing was disrupted, no pause follows.
                        await self._release(slot, not_passed(slot))
        raise Retryable(
            f"the slot of {self._host.node} changes faster than it can be read", reason=SlotReason.SLOT_CONTENDED
        )

    async def read(self) -> Sequence[Slot]:
        """Return all slots of the pool, held or not."""
        pool = self._pool
        return read_slots(pool, await self._client.objects(self._leases, LeaseObject, labelSelector=pool.selector))

    def _may_be_ours(self, slots: Sequence[Slot]) -> bool:
        return any(slot.held and slot.lease.notes.get("instance") == self._host.instance for slot in slots)

    async def _open(self, slots: Sequence[Slot]) -> Sequence[int]:
        """Return the slots to try. Raises ``OutOfTurn``, and what the client raises."""
        # The first free index is chosen at random, so that nodes which start together do not all try the same slot.
        pool = self._pool if self._share is None else await self._share.sized(self._pool, slots)
        free = free_indices(pool, slots, random.randrange(1 << 16))  # noqa: S311 - spreads nodes
        if not free:
            raise OutOfTurn(_describe(pool, slots), reason=Reason.SLOT_HELD)
        self._check_pause(slots)
        if self._zone is not None:
            zone = await self._zone.read()
            if others := other_zones(slots, zone):
                raise zone_refusal(self._pool.name, zone, others)
        if self._turn is not None:
            await self._turn.look(slots)
        return free

    async def _passes(self, slot: Slot) -> bool:
        """Return whether the holder of ``slot`` has its turn; False if the slot has changed in the meantime.

        Raises ``OutOfTurn``, and what the client raises; the slot is released then.
        """
        if UNCHECKED not in slot.lease.notes:
            return True
        path, gate = f"{self._leases}/{self._pool.lease(slot.index)}", None
        try:
            size, refused = await self._share_refusal(slot)
            refused = refused or await self._zone_refusal(slot)
            if refused is None and self._turn is not None:
                gate = await self._turn.check()
        except AgentError:
            # A node that cannot read whether it may begin keeps the slot from no other.
            with suppress(AgentError):
                await self._release(slot, not_passed(slot))
            raise
        with suppress(Conflict, NotFound):
            if refused is not None:
                await self._release(slot, not_passed(slot, size=size))
                raise refused
            if gate is None or self._turn is None:
                await self._client.patch(path, passed(slot, size))
                return True
            await self._release(slot, not_passed(slot, await self._turn.verdict(gate), size))
            raise OutOfTurn(gate.message, reason=gate.reason)
        return False

    async def _share_refusal(self, slot: Slot) -> tuple[str, OutOfTurn | None]:
        """Return the size of the pool as others read it, and why the holder of ``slot`` gives it back: the pool became
        smaller since others took their slots. Raises what the client raises."""
        if self._share is None:
            return "", None
        size = await self._share.read()
        pool = self._share.of(self._pool, size)
        # Those that begin at the same time read the slots after they took their own as well, so one of them sees all.
        others = [other for other in await self.read() if other.held and other.index != slot.index]
        refused = OutOfTurn(_describe(pool, others), reason=Reason.SLOT_HELD) if len(others) >= pool.count else None
        return size.text, refused

    async def _zone_refusal(self, slot: Slot) -> OutOfTurn | None:
        """Return why the holder of ``slot`` gives it back, by slots that are read after it was taken; None if no other
        zone has one. Raises what the client raises."""
        if self._zone is None:
            return None
        zone = zone_of_slot(slot)
        others: Sequence[Slot] = ()
        for _ in range(WRITES):
            others = other_zones([other for other in await self.read() if other.index != slot.index], zone)
            # Holders of others that find this slot release theirs.
            if not (others and goes_first(slot, others)):
                break
        return zone_refusal(self._pool.name, zone, others) if others else None

    async def _release(self, slot: Slot, freed: Object) -> None:
        """Delete a slot, or make it one without a holder, with ``freed``, if it has anything to tell others."""
        path = f"{self._leases}/{self._pool.lease(slot.index)}"
        # A slot without a time of its release pauses the pool.
        lasting = (RELEASED, VERDICT) if self._pool.pause else (RELEASED, VERDICT, SIZE)
        if any((freed["metadata"]["annotations"].get(PREFIX + key) or slot.lease.notes.get(key)) for key in lasting):
            await self._client.patch(path, freed)
        else:
            await self._client.delete(path, uid=slot.lease.uid, resource_version=slot.lease.version)

    def _check_pause(self, slots: Sequence[Slot]) -> None:
        """Raise ``OutOfTurn`` (``SlotPaused``) after a release.

        A node that releases its slot after ``slots`` were read is not waited for: this node could have begun while
        that node held the slot.
        """
        pool, now = self._pool, self._clock.monotonic()
        if not pool.pause:
            return
        freed = {(slot.lease.uid, slot.lease.version): now for slot in slots if not slot.held}
        self._seen = {key: self._seen.get(key, at) for key, at in freed.items()}

        def seen(slot: Slot) -> float:
            return now - self._seen[slot.lease.uid, slot.lease.version]

        clock = self._client.server_clock
        pause = pool_pause(slots, pool.pause, clock.earliest(now), clock.latest(now), seen)
        if pause is None:
            return
        cause = f"for {pool.pause:g} s, because a slot was freed at a time that is not known"
        if pause.until:
            released_by = f"{pause.node or 'a node'} released its slot at {pause.since}"
            cause = f"after an update: until {pause.until}, because {released_by}"
        raise OutOfTurn(f"pool {pool.name} pauses {cause}", reason=SlotReason.SLOT_PAUSED)

    async def _take(self, index: int, slot: Slot | None, claim: Claim, uid: str) -> Slot | None:
        """Return the slot as it was written; None if another node was faster."""
        pool, node = self._pool, self._host.node
        # The slot of another operation of this node has been checked, or is marked.
        notes: dict[str, str] = {}
        if slot is None or not slot.held:
            checks = (self._turn, self._zone, self._share)
            notes |= unchecked() if any(check is not None for check in checks) else {}
            notes |= {f"{PREFIX}{ZONE}": await self._zone.read()} if self._zone is not None else {}
        try:
            if slot is None:
                body = new_slot(pool, index, claim, node, uid, self._now(), notes)
                answer = await self._client.create(self._leases, body)
            else:
                body = taken(slot, claim, node, uid, self._now(), notes)
                answer = await self._client.patch(f"{self._leases}/{pool.lease(index)}", body)
        except Conflict:
            return None
        except NotFound as error:
            # An existing slot that is gone can be created by the next attempt. A missing namespace cannot.
            if slot is None:
                raise Terminal(error.message, reason=Reason.LEASE_NAMESPACE_MISSING) from None
            return None
        return Slot(index, read_lease(decoded(LeaseObject, answer, f"write of {pool.lease(index)}")), uid)

    async def _read_uid(self) -> str:
        node = await self._client.node(self._host.node)
        if self._zone is not None:
            self._zone.keep(node)
        self._uid = node["metadata"]["uid"]
        return self._uid

    def _now(self) -> float | None:
        try:
            return self._client.server_clock.earliest(self._clock.monotonic())
        except Uncertain:
            return None


def _describe(pool: SlotPool, slots: Sequence[Slot]) -> str:
    held = [slot for slot in slots if slot.held]
    who = [
        slot.lease.identity.partition("/")[0] + (f" since {slot.lease.acquired}" if slot.lease.acquired else "")
        for slot in held
    ]
    shown = enumerated(who) or "by unknown holders"
    return f"{len(held)} of {pool.count} slots ({pool.kind}{pool.share}) of pool {pool.name} are held: {shown}"


def slots_of(host: FleetHost, api: KubeClient, settings: SlotSettings) -> FleetSlots:
    """Return the slots of the pool of this node. It sends no request."""
    node = HostIdentity(host.settings.node_name, host.host_id())
    order = RolloutOrder(settings.order, settings.halt_degraded)

    def pool(kind: SlotKind, count: int, pause: float = 0.0) -> SlotPool:
        return SlotPool(settings.pool, kind, count, pause)

    name, clock, percent = host.settings.node_name, host.clock, settings.percent
    disrupt = KubeSlots(
        api,
        node,
        pool(SlotKind.DISRUPT, settings.count, settings.pause),
        clock,
        turn=KubeTurn(api, name, order, clock) if order.given else None,
        zone=KubeZone(api, name, settings.zone, clock) if settings.zone else None,
        share=KubeShare(api, name, percent, clock) if percent else None,
    )
    # 0 means any number, for which no slot is needed. No pause and no check: a pull disturbs no workload.
    stagings = settings.max_staging
    stage = KubeSlots(api, node, pool(SlotKind.STAGE, stagings), clock) if stagings else None
    return FleetSlots(disrupt=disrupt, stage=stage)
