# SPDX-License-Identifier: Apache-2.0
"""The daemon while it cannot work: the store cannot be opened, or there never were valid settings.

It is active and on the bus, ``Degraded`` with the reason, so that ``status`` explains more than a unit that restarts
every five seconds. It does nothing to the host, and tries again at every reload and every ``RETRY`` seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from nodeagent import log
from nodeagent.agent.report.dbus import serve
from nodeagent.agent.report.journal import to_journal, to_notify
from nodeagent.agent.report.motd import MotdFile
from nodeagent.agent.report.report import Report
from nodeagent.errors import AgentError, Terminal, full_text
from nodeagent.host.clock import SystemClock
from nodeagent.host.dbus.client import Bus
from nodeagent.host.notify import Notifier
from nodeagent.report.status import Status
from nodeagent.tasks import finished_before, running
from nodeagent.update.ports.events import HostDegraded, UpdateContext
from nodeagent.update.states import Phase

# Seconds. A full disk or a damaged file is repaired without a signal to this process.
RETRY: Final = 30.0


@dataclass(eq=False)
class Held:
    """Serves the status. Every method but ``Reload`` fails with the error of the daemon."""

    bus: Bus
    notifier: Notifier
    signs_of_life: Callable[[], Coroutine[Any, Any, None]]
    motd: MotdFile
    report: Report = field(default_factory=lambda: Report(Status(phase=Phase.DEGRADED)), init=False)
    _stack: AsyncExitStack | None = field(default=None, init=False)
    _again: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _error: AgentError = field(default_factory=lambda: Terminal("not started yet"), init=False)

    async def show(self, error: AgentError) -> None:
        """Show ``error`` in the status, which is served from the first call on."""
        text = full_text(error, 5)
        changed = (error.reason, text) != (self.report.status.reason, self.report.status.message)
        self._error = error
        # Not in the constructor: the name on the bus belongs to the daemon that works, if one can.
        if self._stack is None:
            log.setup()
            self.report.add(to_journal)
            self.report.add(to_notify(self.notifier.status))
            self.report.add(self.motd.sink)
            self._stack = AsyncExitStack()
            await self._stack.enter_async_context(serve(self.bus, self.report, self._refuse, self.reload))
            # Otherwise systemd would restart the unit after its start timeout, and status would have no answer.
            self.notifier.ready()
            for work in (self.signs_of_life, self.motd.run):
                await self._stack.enter_async_context(running(work()))
        # An attempt every 30 s with the same result must not fill the journal.
        if changed:
            now = SystemClock().now()
            self.report.emit(HostDegraded(UpdateContext(Phase.DEGRADED, since=now), text, error.reason))

    async def wait(self, stop: asyncio.Event) -> None:
        """Wait for the next attempt, a reload or ``stop``."""
        async with running(stop.wait()) as stopping:
            await finished_before(stopping, self._again, timeout=RETRY)
        self._again.clear()

    async def close(self) -> None:
        if self._stack is not None:
            stack, self._stack = self._stack, None
            await stack.aclose()

    async def reload(self) -> None:
        self._again.set()

    def _refuse(self) -> NoReturn:
        raise Terminal(str(self._error), reason=self._error.reason, hint=self._error.hint)
