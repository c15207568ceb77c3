"""One transaction, followed over its own socket to its end.

What the protocol is like (rpm-ostree's ``rpmostreed-transaction.cxx``)
- The address is a D-Bus server with one client after another, not a bus: no Hello, no names, signals without a sender.
- The work begins before ``Start`` is answered, so signals, ``Finished`` among them, may come before that answer. To a
  transaction that was finished already, ``Start`` answers false and ``Finished`` is sent again.
- Once started it does not depend on us: if our connection goes, it goes on. An end of the connection without
  ``Finished`` means that the daemon is gone, and what came of the work only the deployments can tell.
- ``Cancel`` is a wish. It is answered at once; the end comes as ``Finished``, later, and may be a success.
- Until all connections to it are closed, it counts as under way, for everybody. So ours is closed right after the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum

from nodeagent.core.plan.deployment import StageProgress
from nodeagent.errors import AgentError
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.errors import LOST, BusFault, BusUnreachable
from nodeagent.host.dbus.signals import Match, Signals
from nodeagent.host.rpmostree.progress import Progress
from nodeagent.host.rpmostree.timing import Timing

__all__ = ["End", "Outcome", "cancel", "describe", "follow"]

_INTERFACE = "org.projectatomic.rpmostree1.Transaction"


class End(Enum):
    FINISHED = "finished"  # the daemon said so
    LOST = "lost"  # the daemon is gone, or never listened: look at the deployments
    STUCK = "stuck"  # nothing came for too long, and Cancel did not end it


@dataclass(frozen=True, slots=True)
class Outcome:
    """``success`` and ``text`` are of ``Finished``. ``stalled``: it ended because we cancelled it for its silence."""

    end: End
    success: bool = False
    text: str = ""
    stalled: bool = False


async def follow(address: str, timing: Timing, tell: Callable[[StageProgress], None]) -> Outcome:
    """Starts it, or joins in. Cancelling this cancels the transaction. ``BusFault`` only for a refusal of ``Start``."""
    try:
        async with _peer(address, timing) as signals:
            try:
                return await _run(signals, timing, tell)
            except asyncio.CancelledError:
                await _cancel(signals, timing, timing.leave)
                raise
    except BusUnreachable:
        return Outcome(End.LOST)  # the socket of a transaction that is over stays behind, and nobody listens there


async def _run(signals: Signals, timing: Timing, tell: Callable[[StageProgress], None]) -> Outcome:
    loop = asyncio.get_running_loop()
    until = loop.time() + timing.total
    try:
        await signals.call("", "/", _INTERFACE, "Start", timeout=timing.short)
    except BusFault as error:
        # Lost: Finished may have come before, so what came is read. Late: the signals show whether it lives.
        if error.reason not in (LOST, "BusTimeout", "NoReply"):
            raise
    progress = Progress()
    while True:
        silence = min(timing.stall, until - loop.time())
        try:
            async with asyncio.timeout(max(silence, 0)):
                message = await signals.next()
        except TimeoutError:
            return await _cancel(signals, timing, timing.cancel)
        except AgentError:
            return Outcome(End.LOST)
        if message.interface != _INTERFACE:
            continue
        if message.member == "Finished" and message.signature == "bs":
            return Outcome(End.FINISHED, *message.body)
        if told := progress.take(message.member, message.body):
            tell(told)


async def _cancel(signals: Signals, timing: Timing, patience: float) -> Outcome:
    """Waits ``patience`` seconds for the end; ``STUCK`` if it does not come."""
    try:
        async with asyncio.timeout(patience):
            await signals.call("", "/", _INTERFACE, "Cancel", timeout=min(timing.short, patience))
            while (message := await signals.next()).member != "Finished" or message.signature != "bs":
                pass
    except TimeoutError:
        return Outcome(End.STUCK, stalled=True)
    except AgentError as error:
        return Outcome(End.LOST if error.reason == LOST else End.STUCK, stalled=True)
    success, text = message.body
    return Outcome(End.FINISHED, success, text, stalled=True)


async def describe(address: str, timing: Timing) -> tuple[str, str]:
    """Title and initiating client of somebody's transaction, "" for what cannot be found out."""
    try:
        async with _peer(address, timing) as signals:
            (values,) = await signals.call(
                "", "/", "org.freedesktop.DBus.Properties", "GetAll", "s", (_INTERFACE,), timeout=timing.short
            )
    except AgentError:
        return "", ""
    return str(values.get("Title", "")), str(values.get("InitiatingClientDescription", ""))


async def cancel(address: str, timing: Timing) -> None:
    """Asks for the end of a transaction and does not wait for it."""
    try:
        async with _peer(address, timing) as signals:
            await signals.call("", "/", _INTERFACE, "Cancel", timeout=timing.short)
    except AgentError:
        return  # it is over, or it is stuck; whoever waits for its end will see


@asynccontextmanager
async def _peer(address: str, timing: Timing) -> AsyncIterator[Signals]:
    """Closed at once on leaving. Listening before anything is asked."""
    async with (
        Bus(address, peer=True, connect_for=timing.connect) as peer,
        peer.signals(Match(_INTERFACE), timeout=2 * timing.connect) as signals,
    ):
        yield signals
