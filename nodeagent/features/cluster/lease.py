# SPDX-License-Identifier: Apache-2.0
"""The node lease on an API server: the right to disrupt this node, shared with medik8s' operators.

Implements ``ports.Lease``; ``decide/lease.py`` decides. In addition, ``keep`` renews the lease in the
background. The holding is in a ``TokenStore`` before any step relies on it, so a restart or a reboot continues with it;
only ``release`` ends it.

After a write without an answer the lease is read: if it has what was written, the write was done. A holding that was
deleted, taken or cleared is lost for its operation: acquiring it again under this operation is refused.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Final, Protocol

from nodeagent import typed
from nodeagent.core.backoff import jittered
from nodeagent.core.config.text import plain_json
from nodeagent.core.coordination.kube_objects import LeaseObject
from nodeagent.core.coordination.kube_time import micro_time
from nodeagent.core.coordination.lease import Claim, HostIdentity, NodeLease, read_lease
from nodeagent.errors import AgentError, Refused, Retryable, Terminal, Unreachable
from nodeagent.features.cluster.decide.lease import (
    LeaseObservation,
    LeaseToken,
    Standing,
    judge,
    new_lease,
    reason_lost,
    renewal,
    take_over,
    why_lost,
)
from nodeagent.features.cluster.reasons import ClusterReason
from nodeagent.kube.client import KubeClient, Object
from nodeagent.kube.decode import decoded
from nodeagent.kube.errors import AlreadyExists, Conflict, NoAnswer, NotFound, ServerFault
from nodeagent.reasons import Reason
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.host import Clock
from nodeagent.update.ports.store import Notes

TOKEN_NOTE: Final = "lease-token"  # noqa: S105 - the name of a note in the store

# Attempts while the lease changes between the read and the write.
WRITES: Final = 3
# Within the duration of a lease.
RENEWALS: Final = 4

# Seconds. The field is an int32 that clients add to a time: ten years fit, and outlast a node.
UNTIL_RELEASED: Final = 10 * 365 * 86400.0

# Seconds for which ``holder`` returns the last read: it is called after every other call.
RECENT: Final = 2.0


class TokenStore(Protocol):
    """Durable when the call returns."""

    async def load(self) -> LeaseToken | None: ...

    async def save(self, token: LeaseToken | None) -> None: ...


class KubeLease:
    """``duration``: seconds that the lease lasts without a renewal. ``slack``: seconds at its end that do not count as
    held, because other clients judge it by clocks of their own."""

    backend = "kubernetes"

    def __init__(
        self,
        client: KubeClient,
        host: HostIdentity,
        store: TokenStore,
        clock: Clock,
        *,
        namespace: str = "medik8s-leases",
        duration: float = 600.0,
        slack: float = 60.0,
    ) -> None:
        self._client = client
        self._host = host
        self._duration = duration
        self._slack = slack
        self._store = store
        self._clock = clock
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name = f"node-{host.node}".lower()
        self._seen: LeaseObservation | None = None
        self._last: NodeLease | None = None
        # Steady time of the read of _last.
        self._looked = float("-inf")
        # Steady time until which the lease lasts that this process wrote.
        self._valid_until = 0.0
        # A renewal in the background must not meet a release.
        self._writing = asyncio.Lock()

    async def acquire(self, holder: str, operation: str, reason: str) -> None:
        claim = Claim(holder, operation, reason, self._host.instance)
        async with self._writing:
            for _ in range(WRITES):
                try:
                    return await self._acquire(claim)
                except (Conflict, NotFound):
                    # Another client was faster, or changed it: read again.
                    continue
        raise self._contended()

    async def check(self, operation: str, *, need: float = 0.0, offline: bool = False) -> None:
        """Check the holding, and renew the lease if it lasts less than ``need`` seconds.

        With ``offline``, the time that is left is enough if the API server does not answer: for steps that are better
        done than left half-way.
        """
        async with self._writing:
            token = await self._holding(operation)
            try:
                # The lease is read each time: a client may have taken or deleted it since the last renewal.
                lease = await self._still_ours(token)
                if self._left() < need:
                    await self._renew(token, lease, max(self._duration, need + self._slack))
            except (Unreachable, Retryable) as fault:
                # Without an answer, the time that this process wrote itself is certain, because the API server
                # confirmed it.
                if self._left() <= 0:
                    raise Refused(f"the lease ran out: {fault.message}", reason=Reason.LEASE_EXPIRED) from fault
                if not offline or self._left() < need:
                    raise

    async def extend(self, operation: str, seconds: float | None) -> None:
        """Make the lease last ``seconds`` from now. ``keep`` does not shorten it.

        medik8s takes a lease without a duration as free, so None is written as ``UNTIL_RELEASED``.
        """
        # The slack at the end does not count as held, so it is added to the requested time.
        lasts = UNTIL_RELEASED if seconds is None else max(seconds + self._slack, self._duration)
        async with self._writing:
            token = await self._holding(operation)
            await self._renew(token, await self._still_ours(token), lasts)

    async def release(self, operation: str) -> None:
        async with self._writing:
            token = await self._store.load()
            if token is not None and token.claim.operation != operation:
                return
            for _ in range(WRITES):
                lease = await self._read()
                if lease is None or not self._is_held(token, lease, operation):
                    break
                # A conflict means that the lease changed since the read, for example by an annotation, so it is read
                # again.
                with suppress(Conflict):
                    with suppress(NotFound):
                        path = f"{self._leases}/{self._name}"
                        await self._client.delete(path, uid=lease.uid, resource_version=lease.version)
                    self._last = None
                    break
            else:
                raise self._contended()
            # A lost holding stays stored, because it must not be acquired again.
            if token is not None and not token.lost:
                await self._store.save(None)
            # From here on no step may rely on the lease, even if the deletion is repeated after a restart.
            self._valid_until = 0.0

    async def holder(self) -> Holder | None:
        if self._clock.monotonic() - self._looked > RECENT:
            await self._read()
        lease = self._last
        if lease is None or not lease.identity:
            return None
        # The holder of an expired lease does not hold it any more, although its name is still written there.
        if self._judge(lease, Claim("", "", "", "")) is Standing.EXPIRED:
            return None
        # A lease without an end has an artificial duration, which is no time to show.
        endless = lease.duration is not None and lease.duration >= UNTIL_RELEASED
        expires = None if endless else lease.expires
        return Holder(
            name=lease.holder_notes.get("requester") or lease.identity,
            operation=lease.holder_notes.get("operation", ""),
            reason=lease.holder_notes.get("reason", ""),
            since=lease.acquired,
            expires=micro_time(expires) if expires is not None else "",
        )

    async def before_reboot(self, operation: str, cover: float) -> None:
        """Make the lease last ``cover`` seconds, until the node is ready again. Raises what ``check`` raises."""
        await self.extend(operation, cover)

    async def keep(self) -> None:
        """Renew the lease without end while it is held. ``check`` meets the faults when they matter."""
        while True:
            await asyncio.sleep(jittered(self._duration / RENEWALS * 0.8, random.random()))  # noqa: S311
            async with self._writing:
                token = await self._store.load()
                if token is None or token.lost or self._left() > self._duration:
                    # A renewal would shorten a lease that covers a reboot.
                    continue
                try:
                    await self._renew(token, await self._still_ours(token), self._duration)
                except AgentError:
                    continue

    async def _acquire(self, claim: Claim) -> None:
        lease = await self._read()
        token = await self._store.load()
        mine = token if token is not None and token.claim.operation == claim.operation else None
        # A lost holding is never acquired again: the taker may have changed the node in the meantime.
        if mine is not None:
            await self._not_lost(mine, lease)
        standing = self._judge(lease, claim)
        if standing is Standing.OURS and lease is not None:
            await self._renew(None, lease, self._duration)
        elif standing is Standing.FREE or standing is Standing.EXPIRED:
            lease = await self._take(claim, lease)
        else:
            raise Refused(_describe(lease, standing), reason=Reason.LEASE_HELD)
        held = LeaseToken(mine.claim if mine else claim, lease.uid, lease.transitions)
        await self._store.save(held)

    async def _take(self, claim: Claim, lease: NodeLease | None) -> NodeLease:
        name, duration = self._host.node, self._duration
        # The lease refers to the Node as its owner, so that it is deleted together with the Node.
        uid = (await self._client.node(name))["metadata"]["uid"]
        if lease is None:
            body = new_lease(claim, self._name, name, uid, duration, self._now())
            try:
                return await self._write(self._client.create(self._leases, body), claim, body, duration)
            except NotFound as error:
                # The namespace belongs to the installation of nodeagent; an agent may not create it.
                raise Terminal(error.message, reason=Reason.LEASE_NAMESPACE_MISSING) from None
        # The patch names the version that was read, so that of two takers only one succeeds.
        body = take_over(lease, claim, name, uid, duration, self._now())
        return await self._write(self._client.patch(f"{self._leases}/{self._name}", body), claim, body, duration)

    async def _renew(self, token: LeaseToken | None, lease: NodeLease, duration: float) -> None:
        for attempt in range(1, WRITES + 1):
            body = renewal(lease, duration, self._now())
            path = f"{self._leases}/{self._name}"
            try:
                await self._write(self._client.patch(path, body), None, body, duration)
            except (Conflict, NotFound):
                # It may have been annotated only. Without a token the caller reads it again.
                if token is None or attempt == WRITES:
                    raise
                lease = await self._still_ours(token)
            else:
                return

    async def _write(self, request: Awaitable[Object], claim: Claim | None, body: Object, duration: float) -> NodeLease:
        # The time before the request is the safe side: the server writes the lease later than this.
        started = self._clock.monotonic()
        try:
            lease = read_lease(decoded(LeaseObject, await request, f"write of {self._name}"))
        except (NoAnswer, ServerFault, AlreadyExists) as fault:
            # The write may have been done, also by the first of two attempts. The written time identifies it.
            present = await self._read()
            ours = present is not None and present.renewed == body["spec"]["renewTime"]
            if present is None or not ours or (claim is not None and not present.is_of(claim)):
                raise fault from None
            lease = present
        # The slack covers clients that judge the lease by their own clocks.
        self._valid_until = started + duration - self._slack
        self._last, self._looked = lease, self._clock.monotonic()
        return lease

    async def _read(self) -> NodeLease | None:
        try:
            lease = read_lease(await self._client.read(f"{self._leases}/{self._name}", LeaseObject))
        except NotFound:
            lease = None
        self._last, self._looked = lease, self._clock.monotonic()
        # How long the lease has been seen unchanged decides whether it has expired, without any wall clock of this
        # host.
        self._seen = LeaseObservation.again(self._seen, lease, self._clock.monotonic())
        return lease

    def _judge(self, lease: NodeLease | None, claim: Claim) -> Standing:
        return judge(lease, self._seen, claim, self._client.server_clock, self._clock.monotonic())

    def _now(self) -> float:
        """Return the time to write as the present: never ahead of the server's clock."""
        return self._client.server_clock.earliest(self._clock.monotonic())

    def _left(self) -> float:
        return self._valid_until - self._clock.monotonic()

    async def _holding(self, operation: str) -> LeaseToken:
        token = await self._store.load()
        if token is None or token.claim.operation != operation:
            raise Refused("the lease is not held for this operation", reason=Reason.LEASE_LOST)
        return token

    async def _still_ours(self, token: LeaseToken) -> NodeLease:
        lease = await self._read()
        await self._not_lost(token, lease)
        assert lease is not None
        return lease

    async def _not_lost(self, token: LeaseToken, lease: NodeLease | None) -> None:
        cause = why_lost(token, lease)
        if cause:
            if not token.lost:
                # The loss is stored, so that a restart does not take the lease back.
                await self._store.save(replace(token, lost=cause))
            self._valid_until = 0.0
            raise Refused(f"the lease was lost: {cause}", reason=reason_lost(token, cause))

    def _is_held(self, token: LeaseToken | None, lease: NodeLease, operation: str) -> bool:
        if token is not None:
            return why_lost(token, lease) == ""
        # A write that timed out may have been done: no other client would release that lease.
        notes = lease.holder_notes
        return notes.get("operation") == operation and notes.get("instance") == self._host.instance

    def _contended(self) -> Retryable:
        return Retryable(
            f"the lease {self._name} changes faster than it can be read", reason=ClusterReason.LEASE_CONTENDED
        )


def _describe(lease: NodeLease | None, standing: Standing) -> str:
    assert lease is not None
    expires = lease.expires
    who = lease.identity or "an unknown holder"
    reason = f" ({lease.holder_notes['reason']})" if lease.holder_notes.get("reason") else ""
    since = f", since {lease.acquired}" if lease.acquired else ""
    until = f", until {micro_time(expires)} at most" if expires is not None else ""
    state = "" if standing is Standing.HELD else f"; {standing}"
    return f"{who}{reason} holds the node lease{since}{until}{state}"


class StoredToken:
    """The token of the lease of a node, kept in the store through restarts."""

    def __init__(self, store: Notes) -> None:
        self._store = store

    async def load(self) -> LeaseToken | None:
        """Raises ``Terminal`` (``StoreCorrupt``)."""
        text = await self._store.note(TOKEN_NOTE)
        if not text:
            return None
        try:
            return typed.convert(plain_json.loads(text), LeaseToken)
        except ValueError as error:
            raise Terminal(
                f"the token of the lease in the store is unreadable: {error}", reason=Reason.STORE_CORRUPT
            ) from None

    async def save(self, token: LeaseToken | None) -> None:
        await self._store.keep_note(TOKEN_NOTE, "" if token is None else json.dumps(asdict(token), sort_keys=True))
