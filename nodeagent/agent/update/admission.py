"""May we? The window, a slot of the fleet, the node lease, those who hold none, etcd: asked in this order, given back
in reverse.

Whatever says "not now" becomes ``NotNow``, which the executor answers by waiting and asking again. A lease or a slot
that was taken away from an update (``LOST``) is no such thing: it ends the update, since whoever did it meant that.

What is asked depends on what was done already. Before the first byte is written nothing is begun without an answer of
everybody. After it, half-way is worse than going on: then time that is left of the lease is enough while nobody
answers, and only a reboot waits. The way back waits for nobody who cannot be reached.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import Final

from nodeagent.agent.update.run import HOLDER, Limits, Ports, Update, narrate
from nodeagent.core.backoff import delays, jittered
from nodeagent.core.plan.steps import Reboot
from nodeagent.core.update.events import EventKind
from nodeagent.core.update.ports import Holder
from nodeagent.errors import AgentError, Refused, Retryable, Unreachable

__all__ = [
    "LOST",
    "NotNow",
    "Waiting",
    "before_reboot",
    "begin",
    "give_back",
    "has_staged",
    "last_look",
    "may_stage",
    "reboots",
    "still_ours",
    "was_taken",
    "where_there_is_a_node",
    "while_away",
]

LOST: Final = frozenset({"LeaseLost", "LeaseGivenBack", "SlotLost"})
EXPIRED: Final = "LeaseExpired"

NEED: Final = 120.0
"""Seconds that a lease must last before something is begun that is not interrupted any more."""

RECENT: Final = 5.0
UNREACHED: Final = 60.0
"""Seconds for which an answer counts within a phase; the longer one for nobody having answered, which took long."""

LONGEST_PAUSE: Final = 60.0


class NotNow(AgentError):
    """Somebody or something is in the way, with the reason of that. Asking again later may help."""


@contextlib.contextmanager
def later() -> Iterator[None]:
    """Makes every no, and not being able to ask, a ``NotNow``; except for what ends the update."""
    try:
        yield
    except NotNow:
        raise
    except AgentError as error:
        if error.reason in LOST:
            raise
        raise NotNow(error.message, reason=error.reason) from error


@contextlib.contextmanager
def while_away() -> Iterator[None]:
    """Makes a ``NotNow`` of nobody answering, and lets a no pass."""
    try:
        yield
    except (Refused, Unreachable, Retryable) as error:
        if isinstance(error, Refused) and error.reason != EXPIRED:
            raise
        raise NotNow(error.message, reason=error.reason) from error


class Waiting:
    """The pauses of one wait: not shorter than ``lease_retry``, longer while nothing changes. Says each reason once."""

    def __init__(
        self, ports: Ports, limits: Limits, update: Update, look: asyncio.Event, chance: Callable[[], float]
    ) -> None:
        self._ports = ports
        self._limits = limits
        self._update = update
        self._look = look
        self._chance = chance
        self._told = ("", "")
        self._pauses = iter(delays(limits.lease_retry, limits.lease_retry))

    async def pause(self, error: AgentError) -> None:
        """``look`` ends it early."""
        # The words of a fault differ with each try; who refuses is worth a line.
        told = (error.reason, error.message if isinstance(error.__cause__ or error, Refused | NotNow) else "")
        if told != self._told:
            self._told = told
            narrate(self._ports, self._update, EventKind.WAITING, error.message, reason=error.reason)
            self._pauses = delays(self._limits.lease_retry, max(LONGEST_PAUSE, self._limits.lease_retry))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(jittered(next(self._pauses), self._chance())):
                await self._look.wait()


def reboots(update: Update) -> bool:
    return any(isinstance(step, Reboot) for step in update.acts)


async def may_stage(ports: Ports, update: Update) -> None:
    if ports.fleet.staging_slot is not None:
        with later():
            # Nothing is staged while somebody else has the node: so no slot is held for it either.
            _free(await ports.lease.holder(), update.record.operation)
            await ports.fleet.staging_slot.acquire(HOLDER, update.record.operation, _why(update))


async def has_staged(ports: Ports, update: Update) -> None:
    """A slot that could not be given back now is with the end of the update."""
    if ports.fleet.staging_slot is not None:
        try:
            await ports.fleet.staging_slot.release(update.record.operation)
        except AgentError as error:
            narrate(ports, update, EventKind.WARNING, error.message, reason=error.reason)


async def begin(ports: Ports, limits: Limits, update: Update) -> None:
    """Everything is ours when it returns; nothing, or what is taken again without harm, when it raises ``NotNow``."""
    operation, fleet = update.record.operation, ports.fleet
    with later():
        _in_window(ports, limits)
        # First a look, which takes nothing: who holds a slot while he waits for something else keeps it from others.
        if fleet.slot is not None or fleet.gates is not None:
            _free(await ports.lease.holder(), operation)
        await _nobody_else(ports, update)
        try:
            if fleet.slot is not None:
                await fleet.slot.acquire(HOLDER, operation, _why(update))
            await ports.lease.acquire(HOLDER, operation, _why(update))
            await _nobody_else(ports, update)
            if fleet.gates is not None:
                await fleet.gates.hold_machine()
        except Refused as error:
            if error.reason not in LOST and not update.record.unfinished:  # which keeps what it holds until a repair
                await _return(ports, operation)
            raise
    update.asked = ports.clock.monotonic()


async def last_look(ports: Ports, update: Update) -> None:
    """Right before the first byte is written, when time has passed since ``begin``. Raises ``Refused`` for who came in
    between; ``NotNow`` where nobody answers."""
    operation = update.record.operation
    with while_away():
        await ports.lease.check(operation, need=NEED)
        if ports.fleet.slot is not None:
            await ports.fleet.slot.check(operation)
        await _nobody_else(ports, update)
    update.asked = ports.clock.monotonic()


async def still_ours(ports: Ports, update: Update, *, need: float = 0.0) -> None:
    """Before each step once something is written. Raises ``Refused`` (``LOST``)."""
    if ports.clock.monotonic() < update.asked + RECENT:
        return
    await _unless_lost(ports, update, ports.lease.check(update.record.operation, need=need, offline=True))


async def before_reboot(ports: Ports, limits: Limits, update: Update) -> None:
    """May return although nobody answered: on the way back, and while the lease lasts (then it is not written for the
    time of the boot). Otherwise ``NotNow``; ``Refused`` (``LOST``)."""
    record, fleet = update.record, ports.fleet
    lease = ports.lease.check(record.operation, need=NEED, offline=True)
    if record.reverting:
        await _unless_lost(ports, update, lease)
    else:
        with later():
            await lease
    if fleet.slot is not None:
        await _unless_lost(ports, update, fleet.slot.check(record.operation))
    await _unless_lost(ports, update, ports.lease.before_reboot(record.operation, limits.boot_cover))
    if fleet.guard is not None:
        with later():
            await fleet.guard.leave()


async def give_back(ports: Ports, update: Update) -> None:
    """Everything, in reverse. Doing it twice is harmless. Raises ``NotNow`` until all of it is done. A node that is
    half-way as before keeps its cordon, the lease and the slot."""
    operation, fleet = update.record.operation, ports.fleet
    if update.record.repairs_nothing:
        if fleet.staging_slot is not None:
            with later():
                await fleet.staging_slot.release(operation)
        return
    if ports.node is None and fleet.slot is None:
        await ports.lease.release(operation)
        return
    with later():
        if ports.node is not None and update.record.cordon:
            _free(await ports.lease.holder(), operation, "; the node stays cordoned until then")
            for cordon in dict.fromkeys((update.record.cordon, operation)):
                await where_there_is_a_node(ports.node.uncordon(cordon))
        await _return(ports, operation)
        if fleet.staging_slot is not None:
            await fleet.staging_slot.release(operation)


async def was_taken(ports: Ports, operation: str) -> bool:
    """Of a lease that is lost: whether another one has it now. Otherwise somebody cancelled what it was for."""
    try:
        holder = await ports.lease.holder()
    except AgentError:
        return False
    return holder is not None and holder.operation != operation


def _why(update: Update) -> str:
    return f"update to {update.record.to_name}"


def _in_window(ports: Ports, limits: Limits) -> None:
    now = datetime.fromisoformat(ports.clock.now())
    if limits.windows is None or limits.windows.may_begin(now):
        return
    opens = limits.windows.opens(now)
    when = f"opens {opens.isoformat(timespec='minutes').replace('+00:00', 'Z')}" if opens else "never opens"
    raise Refused(f"no window is open; the next one {when}", reason="WindowClosed")


def _free(holder: Holder | None, operation: str, more: str = "") -> None:
    if holder is not None and holder.operation != operation:
        since = f" since {holder.since}" if holder.since else ""
        why = f" ({holder.reason})" if holder.reason else ""
        raise Refused(f"{holder.name} holds the lease{since}{why}{more}", reason="LeaseHeld")


async def _nobody_else(ports: Ports, update: Update) -> None:
    if ports.fleet.gates is not None:
        await ports.fleet.gates.check()
    if ports.fleet.guard is not None and (update.plan.drain or update.plan.reboot):
        await ports.fleet.guard.check()


async def _return(ports: Ports, operation: str) -> None:
    if ports.fleet.gates is not None:
        await where_there_is_a_node(ports.fleet.gates.free_machine())
    await ports.lease.release(operation)
    if ports.fleet.slot is not None:
        await ports.fleet.slot.release(operation)


async def where_there_is_a_node(work: Awaitable[None]) -> None:
    """A Node that was deleted took everything with it."""
    try:
        await work
    except Refused as error:
        if error.reason != "NodeUnknown":
            raise


async def _unless_lost(ports: Ports, update: Update, check: Awaitable[object]) -> None:
    try:
        await check
    except (Refused, Unreachable, Retryable) as error:
        if isinstance(error, Refused) and error.reason != EXPIRED:
            raise
        narrate(ports, update, EventKind.WARNING, f"going on: {error.message}", reason=error.reason)
        update.asked = ports.clock.monotonic() + UNREACHED
    else:
        update.asked = ports.clock.monotonic()
