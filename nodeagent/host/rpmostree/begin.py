"""Asking for a transaction, which the daemon refuses while there is another one.

Busy is an error without a name of its own (G_IO_ERROR_BUSY) and with one of two texts: another transaction of the
daemon, or the lock of the sysroot held by another program. An equal request is no second one, the daemon joins the two,
so an agent that was killed finds its own again. One that an earlier life of ours began for another target is cancelled:
nobody waits for it any more.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from nodeagent.core.deployment import StageProgress
from nodeagent.errors import Refused
from nodeagent.host.bus_errors import BusFault
from nodeagent.host.rpmostree.failures import failure, one_line
from nodeagent.host.rpmostree.request import TITLE, Request
from nodeagent.host.rpmostree.session import Session
from nodeagent.host.rpmostree.timing import Timing
from nodeagent.host.rpmostree.transaction import cancel, describe

__all__ = ["begin"]

_BUSY_CODE = ".Code26"
_BUSY_TEXTS = ("Transaction in progress", "System transaction in progress")
_DBUS = "org.freedesktop.DBus."


async def begin(
    session: Session, os_path: str, request: Request, timing: Timing, tell: Callable[[StageProgress], None]
) -> str:
    """Address of the transaction. ``Refused`` (``TransactionBusy``) if others need longer than we wait."""
    loop = asyncio.get_running_loop()
    until = loop.time() + timing.busy
    pause = timing.busy_pause
    while True:
        try:
            return await session.ask(os_path, request.member, request.signature, request.body)
        except BusFault as error:
            if not error.bus_error or error.bus_error.startswith(_DBUS):
                raise
            if not _is_busy(error):
                raise failure(error.bus_message, request.doing) from error
            who = await _who(session, error.bus_message, timing)
            if loop.time() + pause > until:
                message = f"cannot {request.doing}: still busy after {timing.busy:g} s: {who}"
                raise Refused(message, reason="TransactionBusy") from error
        tell(StageProgress(f"Waiting for {who}"))
        await asyncio.sleep(pause * random.uniform(0.75, 1.25))  # noqa: S311 - so that two who wait do not meet
        pause = min(2 * pause, timing.busy_pause_max)


def _is_busy(error: BusFault) -> bool:
    return error.bus_error.endswith(_BUSY_CODE) or error.bus_message.startswith(_BUSY_TEXTS)


async def _who(session: Session, text: str, timing: Timing) -> str:
    if text.startswith("System transaction"):
        return "another program that holds the lock of the system (ostree admin, bootc)"
    address = await session.active_address()
    title, client = await describe(address, timing) if address else ("", "")
    if title.startswith(f"{TITLE} "):
        await cancel(address, timing)
        return f"an earlier transaction of ours ({one_line(title)}), which was told to end"
    title = title or text.partition("\n")[0].partition(": ")[2]
    return f"the transaction {one_line(title)!r} of {one_line(client) or 'somebody else'}"
