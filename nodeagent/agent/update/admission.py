"""When an update may disrupt this node, and how long it waits for that.

A refusal becomes ``NotNow``: the executor waits and tries again. A lease or a slot that was taken away (``LOST``) ends
the update instead.

Before the first write, every peer must answer. Afterwards the update continues without an answer while its lease lasts,
because a node that is half-way between two configs is worse; only a reboot waits. A revert waits for no peer that does
not answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import Final

from nodeagent.agent.coordination import EXPIRED, LOST, Operation, ignore_missing_node
from nodeagent.agent.update.run import HOLDER, Ports, Update, UpdatePolicy, narrate
from nodeagent.core.backoff import delays, jittered
from nodeagent.core.coordination.windows import Schedule
from nodeagent.core.plan.steps import Reboot
from nodeagent.core.update.events import EventKind
from nodeagent.errors import AgentError, Refused, Retryable, Unreachable

__all__ = [
    "NotNow",
    "Waiting",
    "acquire_all",
    "acquire_staging_slot",
    "check_still_held",
    "reboots",
    "recheck_before_reboot",
    "recheck_before_write",
    "release_all",
    "release_staging_slot",
    "retry_on_outage",
    "uncordon_and_release",
]

NEED: Final = 120.0
"""Seconds that a lease must last before a step that is not interrupted."""

RECENT: Final = 5.0
UNREACHED: Final = 60.0
"""Seconds for which a check counts within a phase. The longer one follows an attempt without an answer."""

LONGEST_PAUSE: Final = 60.0


class NotNow(AgentError):
    """The update cannot continue now; ``reason`` is that of the refusal. A later attempt may succeed."""


@contextlib.contextmanager
def retry_on_refusal() -> Iterator[None]:
    """Turn refusals and outages into ``NotNow``, except for those that end the update."""
    try:
        yield
    except NotNow:
        raise
    except AgentError as error:
        if error.reason in LOST:
            raise
        raise NotNow(error.message, reason=error.reason) from error


@contextlib.contextmanager
def retry_on_outage() -> Iterator[None]:
    """Turn outages into ``NotNow``, and let refusals pass."""
    try:
        yield
    except (Refused, Unreachable, Retryable) as error:
        if isinstance(error, Refused) and error.reason != EXPIRED:
            raise
        raise NotNow(error.message, reason=error.reason) from error


class Waiting:
    """The pauses of one wait: at least ``lease_retry``, longer while nothing changes. Reports each reason once."""

    def __init__(
        self, ports: Ports, policy: UpdatePolicy, update: Update, look: asyncio.Event, chance: Callable[[], float]
    ) -> None:
        self._ports = ports
        self._policy = policy
        self._update = update
        self._look = look
        self._chance = chance
        self._reported = ("", "")
        self._pauses = iter(delays(policy.lease_retry, policy.lease_retry))

    async def pause(self, error: AgentError) -> None:
        """Report ``error`` and sleep. ``look`` ends the pause early."""
        # The message of a fault differs with each attempt; a refusal names the holder, which is worth a line.
        report = (error.reason, error.message if isinstance(error.__cause__ or error, Refused | NotNow) else "")
        if report != self._reported:
            self._reported = report
            narrate(self._ports, self._update, EventKind.WAITING, error.message, reason=error.reason)
            self._pauses = delays(self._policy.lease_retry, max(LONGEST_PAUSE, self._policy.lease_retry))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(jittered(next(self._pauses), self._chance())):
                await self._look.wait()


def reboots(update: Update) -> bool:
    return any(isinstance(step, Reboot) for step in update.acts)


def operation_of(update: Update, windows: Schedule | None = None) -> Operation:
    record, plan = update.record, update.plan
    return Operation(
        record.operation,
        HOLDER,
        f"update to {record.to_name}",
        stops_node=plan.drain or plan.reboot,
        keeps=bool(record.unfinished),
        windows=windows,
    )


async def acquire_staging_slot(ports: Ports, update: Update) -> None:
    with retry_on_refusal():
        await ports.coordination.acquire_staging_slot(operation_of(update))


async def release_staging_slot(ports: Ports, update: Update) -> None:
    """A slot that cannot be released now is released at the end of the update."""
    try:
        await ports.coordination.release_staging_slot(update.record.operation)
    except AgentError as error:
        narrate(ports, update, EventKind.WARNING, error.message, reason=error.reason)


async def acquire_all(ports: Ports, policy: UpdatePolicy, update: Update) -> None:
    """Acquire the right to disrupt this node. Raises ``NotNow``, and ``Refused`` (``LOST``)."""
    with retry_on_refusal():
        await ports.coordination.acquire(operation_of(update, policy.windows))
    update.lease_checked_at = ports.clock.monotonic()


async def recheck_before_write(ports: Ports, update: Update) -> None:
    """Check everything again before the first byte is written, because the drain took time.

    Raises ``Refused`` for an actor that came in between, and ``NotNow`` if a peer does not answer.
    """
    with retry_on_outage():
        await ports.coordination.recheck(operation_of(update), need=NEED)
    update.lease_checked_at = ports.clock.monotonic()


async def check_still_held(ports: Ports, update: Update, *, need: float = 0.0) -> None:
    """Check the lease before a step after the first write. Raises ``Refused`` (``LOST``)."""
    if ports.clock.monotonic() < update.lease_checked_at + RECENT:
        return
    check = ports.coordination.check_lease(update.record.operation, need=need, offline=True)
    await _tolerate_outage(ports, update, check)


async def recheck_before_reboot(ports: Ports, policy: UpdatePolicy, update: Update) -> None:
    """Check everything before the host goes down, and make the lease cover the boot.

    A revert continues without an answer, and so does an update whose lease lasts. Otherwise raises ``NotNow``, and
    ``Refused`` (``LOST``).
    """
    coordination, operation = ports.coordination, update.record.operation
    lease = coordination.check_lease(operation, need=NEED, offline=True)
    if update.record.reverting:
        await _tolerate_outage(ports, update, lease)
    else:
        with retry_on_refusal():
            await lease
    await _tolerate_outage(ports, update, coordination.check_slot(operation))
    await _tolerate_outage(ports, update, coordination.cover_reboot(operation, policy.boot_cover))
    with retry_on_refusal():
        await coordination.move_etcd_leader()


async def release_all(ports: Ports, update: Update) -> None:
    """Release everything, in reverse; releasing it again is harmless. Raises ``NotNow`` until all of it is done.

    A node that is still half-way keeps its cordon, the lease and the slot.
    """
    coordination, record = ports.coordination, update.record
    if ports.node is None and not coordination.has_slots and not record.repairs_nothing:
        await coordination.release(operation_of(update))  # on this host alone: an error is not a refusal
        return
    with retry_on_refusal():
        if not record.repairs_nothing:
            cordons = (record.cordon, record.operation) if record.cordon else ()
            await uncordon_and_release(ports, operation_of(update), cordons)
        await coordination.release_staging_slot(record.operation)


async def uncordon_and_release(ports: Ports, operation: Operation, cordons: Collection[str]) -> None:
    """Undo the cordons that these operations made, and release everything. Raises ``Refused`` and what the ports raise.

    While another operation holds the lease, the node stays cordoned: the cordon may serve that operation as well.
    """
    if ports.node is not None and cordons:
        await ports.coordination.check_free(operation.id, "; the node stays cordoned until then")
        for cordon in dict.fromkeys(cordons):
            await ignore_missing_node(ports.node.uncordon(cordon))
    await ports.coordination.release(operation)


async def _tolerate_outage(ports: Ports, update: Update, check: Awaitable[object]) -> None:
    try:
        await check
    except (Refused, Unreachable, Retryable) as error:
        if isinstance(error, Refused) and error.reason != EXPIRED:
            raise
        narrate(ports, update, EventKind.WARNING, f"continuing: {error.message}", reason=error.reason)
        update.lease_checked_at = ports.clock.monotonic() + UNREACHED
    else:
        update.lease_checked_at = ports.clock.monotonic()
