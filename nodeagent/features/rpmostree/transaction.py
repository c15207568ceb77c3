# SPDX-License-Identifier: Apache-2.0
"""One transaction of rpm-ostreed, followed over its own socket to its end.

The protocol (rpm-ostree's ``rpmostreed-transaction.cxx``)
- The address is a D-Bus server for one client after another, not a bus: no Hello, no names, signals without a sender.
- The work begins before ``Start`` is answered, so signals, even ``Finished``, may arrive before that answer. If the
  transaction has finished already, ``Start`` returns false and ``Finished`` is sent again.
- A started transaction does not depend on its client: it continues when the connection is lost. If the connection ends
  without ``Finished``, the daemon has ended, and only the deployments show the result.
- ``Cancel`` is a request. It is answered at once; the transaction ends with ``Finished``, later, possibly successful.
- The transaction counts as under way until all connections to it are closed, so this one is closed right at the end.

Progress signals
- ``PercentProgress`` is wrong for tasks of n items (0 until the last item, then 100); "(c/n)" in its text is right.
- No signal carries the bytes of a container image. Each layer is a task "[i/n] ... (12.3 MB)" with its size in the
  registry, where n does not count the layers that are present already.
- ``DownloadProgress`` is emitted for ostree remotes only. libostree's progress is a structure of six groups: the last
  one has the bytes so far, the fifth the objects that were fetched and requested.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from nodeagent.core.plan.deployment import StageProgress
from nodeagent.errors import AgentError
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.errors import LOST, BusFault, BusTerminal, BusUnreachable
from nodeagent.host.dbus.signals import Match, Signals
from nodeagent.host.ostree.programs import CommandTiming
from nodeagent.reasons import Reason


@dataclass(frozen=True, slots=True)
class Timing(CommandTiming):
    """Timeouts, in seconds."""

    # One method call. A cold start of the daemon loads the sysroot first; its unit allows five minutes for that.
    call: float = 300.0

    # A call to a running daemon that only reads state.
    short: float = 30.0

    # Connecting to the socket of a transaction, which listens before the daemon returns its address.
    connect: float = 3.0

    # Time without any signal before the transaction is cancelled. A container image is reported by layer only, and a
    # layer of 1 GB takes 55 minutes at 300 kB/s, the slowest link that is expected.
    stall: float = 3600.0

    # One transaction, even if it reports progress. A slow SD card takes hours.
    total: float = 6 * 3600.0

    # From Cancel to Finished. The daemon cannot be cancelled during a sync of a file system or a package script.
    cancel: float = 180.0

    # From Cancel to Finished while the agent itself is stopping.
    leave: float = 5.0

    # Waiting for the transaction of another client. An interactive upgrade takes minutes. After that the client is
    # reported, and the staging is retried later.
    busy: float = 1800.0

    # Pause between two attempts while it is busy; doubled up to ``busy_pause_max``, with jitter.
    busy_pause: float = 1.0

    busy_pause_max: float = 30.0


_COUNTED = re.compile(r"\s*\((\d{1,9})/(\d{1,9})\)\s*$")
# The size of a layer, as GLib formats it in the language of rpm-ostreed: "12.3 MB", with a space that does not break.
_SIZE = re.compile(r"^(?:\[\d+/\d+\] )?Fetching .* \((\d{1,9}(?:[.,]\d{1,9})?) (bytes?|[kMGT]B)\)$")
_UNITS = {"byte": 1, "bytes": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_LAYER = re.compile(r"^\[(\d{1,9})/(\d{1,9})\]\s*")
# Characters; a layer is named by its digest, a message may be long.
_MAX_TASK = 200


class Progress:
    """Translates the signals of a transaction, in their order.

    Of an image, the daemon reports no bytes, but the size of each layer when it begins to fetch it. The end of that
    task, or the next one, means that it has the layer.
    """

    def __init__(self) -> None:
        self._task = StageProgress("")
        self._layers: int | None = None
        self._layer: int | None = None

    def take(self, member: str, body: Sequence[Any]) -> StageProgress | None:
        """Return the progress after this signal, or None if it did not change."""
        progress = self._read(member, body)
        if progress is None or progress == self._task:
            return None
        self._task = progress
        return progress

    def _read(self, member: str, body: Sequence[Any]) -> StageProgress | None:
        match member, body:
            case (("Message" | "TaskBegin"), [str(text), *_]):
                self._fetched()
                self._layer = _size(text)
                return replace(_counted(text, 0), fetched=self._layers)
            case "TaskEnd", _:
                self._fetched()
                return replace(self._task, fetched=self._layers) if self._layers is not None else None
            case "PercentProgress", [str(text), int(percent), *_]:
                return replace(_counted(text, percent), fetched=self._layers)
            case "DownloadProgress", [_, _, _, _, [int(done), int(total)], [int(fetched), *_]]:
                return StageProgress("Fetching objects", min(done, total), total, fetched)
            case _:
                return None

    def _fetched(self) -> None:
        if self._layer is not None:
            self._layers, self._layer = (self._layers or 0) + self._layer, None


def _size(text: str) -> int | None:
    """Return the bytes of the layer that a text announces."""
    size = _SIZE.match(" ".join(text.split()))
    return round(float(size[1].replace(",", ".")) * _UNITS[size[2]]) if size else None


def _counted(text: str, percent: int) -> StageProgress:
    text = " ".join(text.split())
    if layer := _LAYER.match(text):
        # The signal announces the layer, which is not complete yet.
        return _progress(text[layer.end() :], int(layer[1]) - 1, int(layer[2]))
    if counted := _COUNTED.search(text):
        return _progress(text[: counted.start()], int(counted[1]), int(counted[2]))
    return _progress(text, min(percent, 100), 100) if percent else _progress(text, 0, 0)


def _progress(task: str, done: int, total: int) -> StageProgress:
    return StageProgress(task[:_MAX_TASK], max(min(done, total), 0), total)


_INTERFACE = "org.projectatomic.rpmostree1.Transaction"


class End(Enum):
    """How a transaction ended, as seen from here."""

    # The daemon sent Finished.
    FINISHED = "finished"
    # The daemon ended; read the deployments.
    LOST = "lost"
    # No signal for too long, and Cancel did not end it.
    STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """The end of a transaction. ``success`` and ``text`` are the values of ``Finished``.

    ``stalled`` means that it was cancelled because it sent no signal for too long.
    """

    end: End
    success: bool = False
    text: str = ""
    stalled: bool = False


async def follow(address: str, timing: Timing, on_progress: Callable[[StageProgress], None]) -> TransactionResult:
    """Start the transaction, or join it, and wait for its end. Cancelling this task cancels the transaction.

    Raises ``BusFault`` only if ``Start`` or the connection is refused.
    """
    try:
        async with _peer(address, timing) as signals:
            try:
                return await _run(signals, timing, on_progress)
            except asyncio.CancelledError:
                await _cancel(signals, timing, timing.leave)
                raise
    except BusUnreachable as error:
        # A transaction that was not followed has not ended, and the next one would be denied as well.
        if error.denied:
            raise BusTerminal(error.message, reason=Reason.PERMISSION_DENIED) from error
        # The socket of an ended transaction remains without a listener.
        return TransactionResult(End.LOST)


async def _run(signals: Signals, timing: Timing, on_progress: Callable[[StageProgress], None]) -> TransactionResult:
    loop = asyncio.get_running_loop()
    until = loop.time() + timing.total
    try:
        await signals.call("", "/", _INTERFACE, "Start", timeout=timing.short)
    except BusFault as error:
        # If the connection is lost, Finished may have arrived before. If the answer is late, the signals show progress.
        if error.reason not in (LOST, Reason.BUS_TIMEOUT, Reason.NO_REPLY):
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
            return TransactionResult(End.LOST)
        if message.interface != _INTERFACE:
            continue
        if message.member == "Finished" and message.signature == "bs":
            return TransactionResult(End.FINISHED, *message.body)
        if step := progress.take(message.member, message.body):
            on_progress(step)


async def _cancel(signals: Signals, timing: Timing, patience: float) -> TransactionResult:
    """Cancel the transaction and wait ``patience`` seconds for its end, otherwise ``STUCK``."""
    try:
        async with asyncio.timeout(patience):
            await signals.call("", "/", _INTERFACE, "Cancel", timeout=min(timing.short, patience))
            while (message := await signals.next()).member != "Finished" or message.signature != "bs":
                pass
    except TimeoutError:
        return TransactionResult(End.STUCK, stalled=True)
    except AgentError as error:
        return TransactionResult(End.LOST if error.reason == LOST else End.STUCK, stalled=True)
    success, text = message.body
    return TransactionResult(End.FINISHED, success, text, stalled=True)


async def describe(address: str, timing: Timing) -> tuple[str, str]:
    """Return title and initiating client of a transaction, "" for unknown values."""
    try:
        async with _peer(address, timing) as signals:
            (values,) = await signals.call(
                "", "/", "org.freedesktop.DBus.Properties", "GetAll", "s", (_INTERFACE,), timeout=timing.short
            )
    except AgentError:
        return "", ""
    return str(values.get("Title", "")), str(values.get("InitiatingClientDescription", ""))


async def cancel(address: str, timing: Timing) -> None:
    """Request the end of a transaction without waiting for it."""
    try:
        async with _peer(address, timing) as signals:
            await signals.call("", "/", _INTERFACE, "Cancel", timeout=timing.short)
    except AgentError:
        # It has ended or is stuck; the caller waits for its end elsewhere.
        return


@asynccontextmanager
async def _peer(address: str, timing: Timing) -> AsyncIterator[Signals]:
    """Connect to a transaction and subscribe to its signals before any call."""
    async with (
        Bus(address, peer=True, connect_for=timing.connect) as peer,
        peer.signals(Match(_INTERFACE), timeout=2 * timing.connect) as signals,
    ):
        yield signals
