# SPDX-License-Identifier: Apache-2.0
"""Slots of a fleet without Kubernetes: a client of FleetLock servers, the protocol of Zincati.

Faults of the network and of the server are retried a few times. A refusal is not: the caller decides how long to wait.
A request without an answer may have taken the slot anyway. That is harmless: the next request returns the same slot,
and ``unlock`` at every start, which the protocol requires, releases a slot that is not needed any more.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from typing import Final
from urllib.parse import urlsplit

from nodeagent.core.backoff import delays, jittered
from nodeagent.errors import InvalidInput, OutOfTurn, Terminal, Unreachable
from nodeagent.features.fleetlock.decide import Call, body_of, is_group, refusal_text
from nodeagent.features.fleetlock.reasons import FleetLockReason
from nodeagent.host.http import Answer, HttpFault, request, tls_context
from nodeagent.reasons import Reason

ATTEMPTS: Final = 4
FIRST_PAUSE: Final = 1.0
MAX_PAUSE: Final = 10.0

# Refusals, beside every 5xx that follows the protocol: without a free slot airlock answers 500, poseidon 423.
NOT_NOW: Final = frozenset({409, 423, 429})

LOCKED: Final = 423

# The kind of answer for a fault of a poseidon server. The 500 of airlock without a free slot has another kind.
INTERNAL_ERROR: Final = "internal_error"


class FleetLock:
    """A client of one FleetLock server. Implements ``ports.Slots``: the server knows hosts, not operations.

    ``base`` is the server's address, with or without a path. ``client`` comes from
    ``core.host_id``. ``ca`` is a PEM file ("" for the host's authorities). ``timeout`` is for
    one attempt, in seconds. Raises ``InvalidInput`` (``FleetLockInvalid``).
    """

    def __init__(
        self,
        base: str,
        client: str,
        group: str = "default",
        *,
        ca: str = "",
        timeout: float = 60.0,
        first_pause: float = FIRST_PAUSE,
    ) -> None:
        # The address is in messages and in the status, where a password must not be.
        if not _is_plain(base):
            raise InvalidInput(
                "the address of the FleetLock server is no plain URL", reason=FleetLockReason.FLEET_LOCK_INVALID
            )
        if not is_group(group):
            raise InvalidInput(
                f"{group!r} is no group: letters, digits, dots and dashes", reason=FleetLockReason.FLEET_LOCK_INVALID
            )
        self._base = base.rstrip("/") + "/"
        self._body = body_of(client, group)
        self._group = group
        self._ca = ca
        self._timeout = timeout
        self._first_pause = first_pause
        self._tls: ssl.SSLContext | None = None

    async def look(self) -> None:
        """The protocol has no request that takes nothing."""

    async def acquire(self, holder: str, operation: str, reason: str) -> None:  # noqa: ARG002 - the port's
        await self.lock()

    async def check(self, operation: str) -> None:  # noqa: ARG002 - the port's
        # Recursive: a host that has a slot keeps it.
        await self.lock()

    async def release(self, operation: str) -> None:  # noqa: ARG002 - the port's
        await self.unlock()

    async def lock(self) -> None:
        """Take a slot, or keep the present one. Raises ``OutOfTurn`` (``SlotHeld``), and the errors of ``unlock``."""
        await self._call(Call.LOCK)

    async def unlock(self) -> None:
        """Release the slot of this host, if it has one.

        Raises ``Unreachable`` (``FleetLockUnreachable``) and ``Terminal`` (``FleetLockRejected``: the address or the
        group is wrong).
        """
        await self._call(Call.UNLOCK)

    async def _call(self, call: Call) -> None:
        pauses = delays(self._first_pause, MAX_PAUSE)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._judge(call, await self._once(call))
            except Unreachable:
                if attempt == ATTEMPTS:
                    raise
            # The hosts of a fleet that lost the server at one time must not return at one time.
            await asyncio.sleep(jittered(next(pauses), random.random()))  # noqa: S311 - spreads load, no secret
        raise AssertionError("the last attempt returns or raises")

    async def _once(self, call: Call) -> Answer:
        url = self._base + call
        try:
            if self._tls is None and url.startswith("https:"):
                self._tls = await asyncio.to_thread(tls_context, self._ca)
            headers = {"fleet-lock-protocol": "true"}
            return await request("POST", url, body=self._body, headers=headers, tls=self._tls, timeout=self._timeout)
        except OSError as error:
            raise Terminal(
                f"the authority {self._ca}: {error.strerror or error}", reason=FleetLockReason.FLEET_LOCK_REJECTED
            ) from error
        except HttpFault as fault:
            raise Unreachable(f"{url}: {fault}", reason=FleetLockReason.FLEET_LOCK_UNREACHABLE) from fault

    def _judge(self, call: Call, answer: Answer) -> None:
        body = answer.json()
        status, words = answer.status, refusal_text(body)
        if 200 <= status < 300:
            return
        # For a host without a slot, poseidon answers that another host holds it, and airlock answers with success.
        if call is Call.UNLOCK and status == LOCKED and words:
            return
        refused = status in NOT_NOW or (status >= 500 and words and body.get("kind") != INTERNAL_ERROR)
        if call is Call.LOCK and refused:
            raise OutOfTurn(f"no slot of group {self._group} ({words or f'status {status}'})", reason=Reason.SLOT_HELD)
        message = f"{self._base}{call}: status {status}{', ' + words if words else ''}"
        if status >= 500 or status in NOT_NOW:
            raise Unreachable(message, reason=FleetLockReason.FLEET_LOCK_UNREACHABLE)
        raise Terminal(message, reason=FleetLockReason.FLEET_LOCK_REJECTED)


def _is_plain(base: str) -> bool:
    try:
        parts = urlsplit(base)
        port = parts.port
    except ValueError:
        return False
    return (
        parts.scheme in ("http", "https")
        and bool(parts.hostname)
        and port != 0
        and parts.username is None
        and not parts.query
    )
