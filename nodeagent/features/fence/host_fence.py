# SPDX-License-Identifier: Apache-2.0
"""The I/O fence of the daemon: around each staging, according to the settings, reported as events.

The fence never fails an update. What prevents it, and each facility that it lacks, is reported once in the life of the
process; the OS is staged anyway. This module is the only one that the agent imports.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from nodeagent import log
from nodeagent.errors import AgentError
from nodeagent.features.fence.decide.bounds import Idle
from nodeagent.features.fence.decide.view import FenceEvent, FenceView, summary
from nodeagent.features.fence.reasons import FenceReason
from nodeagent.features.fence.restore_log import RestoreLog
from nodeagent.features.fence.settings import FenceSettings
from nodeagent.host.dbus.client import Bus
from nodeagent.update.ports.host import Clock
from nodeagent.update.ports.system import StagingUnit

if TYPE_CHECKING:
    # These imports take a sixth of the daemon's start, and most processes never stage anything.
    from nodeagent.features.fence.fence import ActiveFence

RESTORE_LOG = Path("/run/nodeagent/fence")

# Seconds for which a measurement of the idle disk is used again: a failed staging is retried after minutes.
IDLE_VALID = 900.0
_MB = 1_000_000
_NOT_RECOVERED = FenceReason.FENCE_NOT_RECOVERED
_BAD = frozenset({_NOT_RECOVERED, FenceReason.FENCE_FAILED})

Emit = Callable[[FenceEvent], None]
_log = log.get(__name__)


class HostFence:
    """Implements ``guard.Fence``. ``directory`` is on the disk of the OS; it is probed on a host without etcd."""

    def __init__(
        self, bus: Bus, settings: FenceSettings, clock: Clock, directory: Path, restore_log: Path = RESTORE_LOG
    ) -> None:
        self._bus = bus
        self._settings = settings
        self._clock = clock
        self._directory = directory
        self._restore_log = RestoreLog(restore_log)
        self._idle: tuple[float, Idle] | None = None
        self._reported: set[str] = set()

    def use(self, settings: FenceSettings) -> None:
        """Apply from the next staging on."""
        self._settings = settings

    @asynccontextmanager
    async def around(self, emit: Emit, unit: StagingUnit) -> AsyncIterator[None]:
        settings = self._settings
        # Nothing is imported or probed: the admin may have turned the fence off because of a fault in it.
        if settings.enabled == "never":
            yield
            return
        reporter = _Reporter(emit, self._reported)
        if import_error := await _import():
            reporter.once(f"not active, {import_error}", reason=FenceReason.FENCE_FAILED)
            yield
            return
        from nodeagent.features.fence.fence import FenceOptions, fenced
        from nodeagent.features.fence.sensors.sensors import Protected, find_etcd

        # The member is looked for at each staging, since it may have come to this host after the daemon started.
        protected = await find_etcd()
        if protected is None and settings.enabled == "always":
            protected = Protected(self._directory)
        if protected is None:
            reporter.once("not needed: this host has no member of etcd")
            yield
            return
        fresh = self._idle is not None and self._clock.monotonic() - self._idle[0] <= IDLE_VALID
        idle = self._idle[1] if self._idle is not None and fresh else None
        options = FenceOptions(idle=idle, object_fsync=unit.is_busy, syncs=unit.name)
        try:
            async with fenced(
                unit.slice or unit.name,
                protected,
                bus=self._bus,
                restore_log=self._restore_log,
                options=options,
                emit=reporter.show,
            ) as fence:
                reporter.fence = fence
                # Only a measurement made now is kept: repeating an old one would extend its life without end.
                if options.idle is None and fence.idle is not None:
                    self._idle = (self._clock.monotonic(), fence.idle)
                yield
        finally:
            reporter.end()


async def recover(bus: Bus, path: Path = RESTORE_LOG) -> None:
    """Restore what a killed agent left."""
    restore_log = RestoreLog(path)
    with suppress(AgentError):
        # If the log cannot be read, recover reports it.
        if not await restore_log.load():
            return
    if import_error := await _import():
        was, failed = True, [import_error]
    else:
        from nodeagent.features.fence.actuators.actuators import recover as recover_limits

        was, failed = await recover_limits(bus, restore_log)
    if failed:
        message = f"the limits of the I/O fence of a killed agent are still set: {'; '.join(failed)}"
        _log.error(message, reason=_NOT_RECOVERED)
    elif was:
        _log.warning("removed the limits of the I/O fence of a killed agent")


class _Reporter:
    """Turns views into events: the start, a change of the reason, missing facilities, the end."""

    def __init__(self, emit: Emit, reported: set[str]) -> None:
        self.fence: ActiveFence | None = None
        self._emit = emit
        self._reported = reported
        self._last: FenceView | None = None

    def show(self, view: FenceView) -> None:
        last, self._last = self._last, view
        if not view.active:
            self._emit(FenceEvent(view))
            self.once(f"not active, {view.message}", view, view.reason)
        elif last is None or not last.active:
            self._emit(FenceEvent(view, f"active, {_cap(view)}"))
        elif view.reason != last.reason:
            self._emit(FenceEvent(view, f"{view.message}; {_cap(view)}", routine=True))
        else:
            self._emit(FenceEvent(view))
        for what in view.missing:
            self.once(f"degraded: {what}", view)

    def once(self, message: str, view: FenceView | None = None, reason: str = "") -> None:
        if message not in self._reported:
            self._reported.add(message)
            self._emit(FenceEvent(view, message, reason, bad=reason in _BAD))

    def end(self) -> None:
        if self.fence is not None and self.fence.left:
            message = f"the limits of the I/O fence could not be removed: {'; '.join(self.fence.left)}"
            self._emit(FenceEvent(None, message, _NOT_RECOVERED, bad=True))
        message = f"ended, {summary(self._last)}" if self._last is not None and self._last.active else ""
        latency = self.fence.disk_latency if self.fence else None
        self._emit(FenceEvent(None, message, etcd_disk=latency.summary() if latency else None))


def _cap(view: FenceView) -> str:
    if view.write_bps is None:
        return "writes are not capped"
    requests = "" if view.write_iops is None else f" in {view.write_iops} requests"
    return f"writes are capped at {view.write_bps / _MB:.1f} MB/s{requests}"


async def _import() -> str:
    """Import in a thread, because it would block the loop. Return the error; "" on success."""
    try:
        await asyncio.to_thread(import_module, "nodeagent.features.fence.fence")
    except ImportError as error:
        # Another release was installed under the running daemon; a restart of the daemon helps.
        return str(error)
    return ""
