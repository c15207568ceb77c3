"""The I/O fence as the daemon has it: around each staging, by the settings, told to whoever watches.

Nothing of it fails an update. What keeps the fence from working, and what it has to do without, is told once in the
life of the process; the OS is staged all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from nodeagent import log
from nodeagent.core.update.fence_view import FenceTold, FenceView, summary
from nodeagent.core.update.ports import Clock
from nodeagent.errors import AgentError
from nodeagent.fence.policy.bounds import Idle
from nodeagent.fence.restore_log import FileUndo
from nodeagent.host.dbus.client import Bus
from nodeagent.settings.fence import FenceSettings

if TYPE_CHECKING:  # a sixth of the daemon's start, for what most of its lives never do
    from nodeagent.fence.fence import Fence
    from nodeagent.fence.sensors.protected import Victim

__all__ = ["HostFence"]

NOTES = Path("/run/nodeagent/fence")
KNOWN_FOR = 900.0
"""Seconds for which the idle disk is not measured again: a staging that failed is tried again after minutes."""
UPDATER = "rpm-ostreed.service"
"""The unit whose writes are limited: it does all of the work of a staging."""
_MB = 1_000_000
_LEFT = "FenceNotRecovered"
_BAD = frozenset({_LEFT, "FenceFailed"})

Tell = Callable[[FenceTold], None]
_log = log.get(__name__)


class HostFence:
    """Fulfils ``ports.Fence``. ``directory`` is on the disk of the OS: where it is probed if there is no etcd, and the
    settings say always."""

    def __init__(self, bus: Bus, settings: FenceSettings, clock: Clock, directory: Path, notes: Path = NOTES) -> None:
        self._bus = bus
        self._settings = settings
        self._clock = clock
        self._directory = directory
        self._undo = FileUndo(notes)
        self._idle: tuple[float, Idle] | None = None
        self._said: set[str] = set()

    def use(self, settings: FenceSettings) -> None:
        """From the next staging on."""
        self._settings = settings

    async def recover(self) -> None:
        """First thing at start: what a killed agent left is put back."""
        with suppress(AgentError):  # recover says so, too
            if not await self._undo.load():
                return
        try:
            await _import()
        except ImportError as error:
            was, failed = True, [str(error)]
        else:
            from nodeagent.fence.actuators.actuators import recover

            was, failed = await recover(self._bus, self._undo)
        if failed:
            _log.error(f"the I/O fence of an agent that was killed is still up: {'; '.join(failed)}", reason=_LEFT)
        elif was:
            _log.warning("took down the I/O fence of an agent that was killed")

    @asynccontextmanager
    async def around(self, tell: Tell) -> AsyncIterator[None]:
        settings = self._settings
        if settings.enabled == "never":
            yield
            return
        teller = _Teller(tell, self._said)
        lost = ""
        try:
            await _import()
        except ImportError as error:  # another release was installed under us, which a restart makes good
            lost = str(error)
        if lost:
            teller.once(f"not up, {lost}", reason="FenceFailed")
            yield
            return
        from nodeagent.fence.fence import Terms, fenced

        victim = await _victim(settings, self._directory)
        if victim is None:
            teller.once("not needed: no member of etcd is on this host")
            yield
            return
        try:
            terms = Terms(idle=self._known(), object_fsync=True)
            async with fenced(UPDATER, victim, bus=self._bus, undo=self._undo, terms=terms, tell=teller.see) as fence:
                teller.fence = fence
                if terms.idle is None and fence.idle is not None:
                    self._idle = (self._clock.monotonic(), fence.idle)
                yield
        finally:
            teller.end()

    def _known(self) -> Idle | None:
        if self._idle is None or self._clock.monotonic() - self._idle[0] > KNOWN_FOR:
            return None
        return self._idle[1]


class _Teller:
    """Views as what is worth a line: the beginning, a change of the reason, what is missing, the end."""

    def __init__(self, tell: Tell, said: set[str]) -> None:
        self.fence: Fence | None = None
        self._tell = tell
        self._said = said
        self._last: FenceView | None = None

    def see(self, view: FenceView) -> None:
        last, self._last = self._last, view
        if not view.active:
            self._tell(FenceTold(view))
            self.once(f"not up, {view.message}", view, view.reason)
        elif last is None or not last.active:
            self._tell(FenceTold(view, f"up, {_cap(view)}"))
        elif view.reason != last.reason:
            self._tell(FenceTold(view, f"{view.message}; {_cap(view)}", often=True))
        else:
            self._tell(FenceTold(view))
        for what in view.missing:
            self.once(f"does without something: {what}", view)

    def once(self, message: str, view: FenceView | None = None, reason: str = "") -> None:
        if message not in self._said:
            self._said.add(message)
            self._tell(FenceTold(view, message, reason, bad=reason in _BAD))

    def end(self) -> None:
        if self.fence is not None and self.fence.left:
            message = f"the I/O fence could not be taken down: {'; '.join(self.fence.left)}"
            self._tell(FenceTold(None, message, _LEFT, bad=True))
        if self._last is not None and self._last.active:
            self._tell(FenceTold(None, f"gone, {summary(self._last)}"))
        else:
            self._tell(FenceTold(None))


def _cap(view: FenceView) -> str:
    if view.write_bps is None:
        return "writes are not capped"
    pieces = "" if view.write_iops is None else f" in {view.write_iops} pieces"
    return f"at most {view.write_bps / _MB:.1f} MB/s are written{pieces}"


async def _import() -> None:
    """Not in the loop, which it would hold up."""
    await asyncio.to_thread(import_module, "nodeagent.fence.fence")


async def _victim(settings: FenceSettings, directory: Path) -> Victim | None:
    from nodeagent.fence.sensors.protected import Victim, find_etcd

    found = await find_etcd()
    if found is None and settings.enabled == "always":
        return Victim(directory)
    return found
