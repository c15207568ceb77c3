# SPDX-License-Identifier: Apache-2.0
"""Tasks beside the updates: they report, follow the cluster or renew a lease, and none of them may end the daemon.

Also the requests to the process from outside: signals to stop, and the watchdog of systemd."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from nodeagent import log
from nodeagent.agent.report.report import Report
from nodeagent.core.backoff import delays, jittered
from nodeagent.core.once import Once
from nodeagent.errors import AgentError, Refused
from nodeagent.host.notify import Notifier, watchdog_interval
from nodeagent.reasons import Reason
from nodeagent.update.stages.os_deployments import HostDeployments

# Seconds before a task that failed is started again, doubled with each failure.
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 300.0

# Seconds after which a task that is started again counts as well, so that its next failure pauses briefly.
CALM = 600.0

SOFT_REBOOT = "soft reboot"


async def keep_running(name: str, work: Callable[[], Awaitable[None]], random: Callable[[], float]) -> None:
    """Run ``work`` until it returns, and start it again whenever it raises.

    Every error is logged with its traceback, once for each text. ``random`` is a number from 0 to 1 at each
    call.
    """
    clock = asyncio.get_running_loop().time
    pauses, logged = delays(FIRST_PAUSE, LONGEST_PAUSE), Once[str]()
    while True:
        started = clock()
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - whatever it is, updates and the lease matter more
            if clock() - started >= CALM:
                pauses, logged = delays(FIRST_PAUSE, LONGEST_PAUSE), Once[str]()
            pause = jittered(next(pauses), random())
            text = f"{type(error).__name__}: {error}"
            if logged.is_new(text):
                reason = error.reason if isinstance(error, AgentError) else Reason.INTERNAL_ERROR
                words = f"{name} failed and starts again in {pause:.0f} s: {text}"
                log.get(__name__).error(words, reason=reason, exc_info=error)
            await asyncio.sleep(pause)
        else:
            return


async def run_until(stop: asyncio.Event, *work: Coroutine[None, None, None]) -> None:
    """Run ``work`` until ``stop`` is set or one of them fails: then all of them end, and the error is raised."""
    stopping = asyncio.create_task(stop.wait())
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        pending = set(tasks)
        while pending and not stopping.done():
            done, _ = await asyncio.wait({*pending, stopping}, return_when=asyncio.FIRST_COMPLETED)
            pending -= done
            for task in done - {stopping}:
                # A task that failed raises its error here, and ends all others.
                task.result()
    finally:
        for task in (*tasks, stopping):
            task.cancel()
        # The tasks use the adapters, which the caller closes next.
        await asyncio.gather(*tasks, stopping, return_exceptions=True)


async def watchdog(notifier: Notifier) -> None:
    """Signs of life, from the loop itself: one that is stuck sends none."""
    interval = watchdog_interval()
    while interval is not None:
        notifier.watchdog()
        await asyncio.sleep(interval)


@asynccontextmanager
async def stop_signals() -> AsyncIterator[asyncio.Event]:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # The handler of asyncio runs in the loop. One of the module signal could interrupt any statement.
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


@dataclass(eq=False)
class SoftRebootWatch:
    """Warns at once of a soft reboot into a deployment that is not finalized.

    ``changed`` is called when a soft reboot may have been prepared or cleared; ``run`` reports what that means.
    """

    os: HostDeployments
    report: Report
    _look: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def changed(self) -> None:
        self._look.set()

    async def run(self) -> None:
        while True:
            await self._look.wait()
            # Cleared before the read, so that a preparation during the read is not missed.
            self._look.clear()
            if deployment := await self.os.port.unmerged_soft_reboot():
                message = (
                    f"{deployment} is locked and prepared for a soft reboot: systemctl reboot would start it unmerged"
                )
                self.report.problem(SOFT_REBOOT, Refused(message, reason=Reason.LOCKED_SOFT_REBOOT))
            else:
                self.report.solved(SOFT_REBOOT, "no locked deployment is prepared for a soft reboot any more")
