"""Let systemd read its unit files again: one part of the manager of systemd (``systemd``).

Facts (systemd's ``org.freedesktop.systemd1(5)`` and ``src/core``):
- ``Reload`` (daemon-reload) answers when it is finished. A manager that re-executes during it loses the answer, so the
  ``Reloading`` signals are used too. They also distinguish a slow reload from a manager that does not answer.
"""

from __future__ import annotations

import asyncio
from typing import Final

from nodeagent.errors import Terminal
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.errors import LOST, BusRetryable, service_name
from nodeagent.host.dbus.signals import Signals
from nodeagent.host.systemd_jobs import MANAGER, NAME, PATH, subscribed
from nodeagent.reasons import Reason

# Attempts, if the bus or systemd restarts during one.
_ATTEMPTS: Final = 3
# Seconds for the answer after the signal that a daemon-reload has finished.
_RELOAD_GRACE: Final = 15.0


async def daemon_reload(bus: Bus, deadline: float) -> None:
    """Let systemd read its unit files again. Raises ``Terminal`` (``ActionLate``) and ``BusRetryable``."""
    # One deadline covers all attempts, so that a bus that restarts does not multiply it.
    until = _now() + deadline
    for left in reversed(range(_ATTEMPTS)):
        try:
            # A second daemon-reload is harmless, so a lost connection needs no check of the state.
            await _reload(bus, until, deadline)
        except BusRetryable as error:
            if error.reason != LOST or not left:
                raise
        else:
            return


async def _reload(bus: Bus, until: float, deadline: float) -> None:
    # The subscription comes first. A reload of a small host may end before its answer is read.
    async with subscribed(bus, "Reloading") as reloading:
        answer = asyncio.create_task(
            reloading.call(NAME, PATH, MANAGER, "Reload", timeout=max(until - _now(), 0)), name="daemon-reload"
        )
        began = asyncio.Event()
        seen = asyncio.create_task(_wait_for_reload(reloading, began), name="daemon-reload-signals")
        try:
            await asyncio.wait({answer, seen}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                # systemd answers after the reload, but it may have lost the connection during it. The signal then
                # is the only sign.
                await asyncio.wait({answer}, timeout=min(_RELOAD_GRACE, max(until - _now(), 0)))
            if not answer.done() and seen.exception() is None:
                # The answer was lost, but the reload is done.
                return
            try:
                await answer
            except BusRetryable as error:
                if error.reason == Reason.BUS_TIMEOUT and began.is_set():
                    raise TimeoutError from error
                if error.reason != Reason.NO_REPLY:
                    raise
                # NoReply means that systemd left the bus before it answered. The signal still reports the end.
                async with asyncio.timeout_at(until):
                    await seen
        except TimeoutError:
            message = f"daemon-reload not finished after {deadline:g} s"
            # The manager works on it, so it is not unavailable.
            if began.is_set():
                raise Terminal(message, reason=Reason.ACTION_LATE) from None
            raise BusRetryable(message, reason=Reason.BUS_TIMEOUT, service=service_name(NAME)) from None
        finally:
            # Both tasks end here in every case, so that no late answer belongs to the next reload.
            answer.cancel()
            seen.cancel()
            await asyncio.gather(answer, seen, return_exceptions=True)


async def _wait_for_reload(reloading: Signals, began: asyncio.Event) -> None:
    """Wait for a whole daemon-reload. One that was under way before does not count."""
    await reloading.first(lambda body: body[0] is True)
    began.set()
    await reloading.first(lambda body: body[0] is False)


def _now() -> float:
    return asyncio.get_running_loop().time()
