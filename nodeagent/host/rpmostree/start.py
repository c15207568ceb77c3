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

from nodeagent.core.plan.deployment import StageProgress
from nodeagent.errors import Refused
from nodeagent.host.dbus.errors import BusFault
from nodeagent.host.rpmostree.failures import failure, one_line
from nodeagent.host.rpmostree.request import TITLE, Request
from nodeagent.host.rpmostree.session import Session
from nodeagent.host.rpmostree.timing import Timing
from nodeagent.host.rpmostree.transaction import cancel, describe

__all__ = ["Patience", "begin"]

_BUSY_CODE = ".Code26"
_BUSY_TEXTS = ("Transaction in progress", "System transaction in progress")
_DBUS = "org.freedesktop.DBus."


class Patience:
    """How long one operation waits for others altogether, from when they are first in its way, and whom it tells."""

    def __init__(self, timing: Timing, tell: Callable[[StageProgress], None]) -> None:
        self.timing = timing
        self._tell = tell
        self._until: float | None = None
        self._pause = timing.busy_pause

    async def wait(self, who: str, doing: str) -> None:
        """``Refused`` (``TransactionBusy``) if others need longer than we wait."""
        now = asyncio.get_running_loop().time()
        self._until = self._until or now + self.timing.busy
        if now + self._pause > self._until:
            message = f"cannot {doing}: still busy after {self.timing.busy:g} s: {who}"
            raise Refused(message, reason="TransactionBusy")
        self._tell(StageProgress(f"Waiting for {who}"))
        await asyncio.sleep(self._pause * random.uniform(0.75, 1.25))  # noqa: S311 - so that two who wait do not meet
        self._pause = min(2 * self._pause, self.timing.busy_pause_max)


async def begin(session: Session, os_path: str, request: Request, patience: Patience) -> str:
    """Address of the transaction. "" if there was another one, and we waited: what it left behind is to be looked at
    before anything is asked again, for the daemon would throw it away."""
    try:
        return await session.ask(os_path, request.member, request.signature, request.body)
    except BusFault as error:
        if not error.bus_error or error.bus_error.startswith(_DBUS):
            raise
        if not _is_busy(error):
            raise failure(error.bus_message, request.doing) from error
        who = await _who(session, error.bus_message, patience.timing)
    await patience.wait(who, request.doing)
    return ""


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
