# SPDX-License-Identifier: Apache-2.0
"""Report drift when it happens: compare managed paths with the current config after they changed.

The watch reports changes of paths; only the entries of these paths are compared. All of them are compared at the start,
after an update, and at a low rate, for what a watch cannot see: the enablement of units, a write through a mapping, or
a directory that is not watched. During an update nothing is compared, because the host is between two configs.

The OS is compared with all entries. The booted deployment cannot change in the life of a process, so rpm-ostreed is
called once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

from nodeagent.core.backoff import delays
from nodeagent.core.plan.entries import only
from nodeagent.errors import InvalidInput, Problem, Retryable
from nodeagent.features.drift.decide import SHOWN, Drift, describe_drift, updated, watched_paths
from nodeagent.features.drift.events import DriftChanged
from nodeagent.features.drift.os_drift import OsDrift
from nodeagent.features.drift.reasons import DriftReason
from nodeagent.reasons import Reason
from nodeagent.report.status import Status
from nodeagent.tasks import finished_before, running
from nodeagent.update.next.preflight import Desired
from nodeagent.update.next.unit_checks import UnitChecks
from nodeagent.update.ports import events
from nodeagent.update.ports.events import Event
from nodeagent.update.ports.host import Reporter
from nodeagent.update.ports.store import Notes
from nodeagent.update.record import half_way, in_effect
from nodeagent.update.run import Ports
from nodeagent.update.stages.compare import mismatches
from nodeagent.update.states import Prepare, Rest

# Seconds from a change to the comparison, because editors write in several steps.
SETTLE: Final = 1.0

# Longest such pause, in seconds, while a path changes all the time. The pause doubles with each comparison.
BUSY: Final = 60.0

# Seconds without a change after which the pause is the shortest again.
CALM: Final = 120.0

# Seconds between two comparisons of all entries, which read every managed file.
COMPARE_ALL: Final = 6 * 3600.0

# The same if some directories are not watched.
COMPARE_UNWATCHED: Final = 900.0

TOPIC: Final = "drift"
# Entries of units that exist nowhere.
UNITS: Final = "units"

# The kinds of events after which the host may be between two configs, or have another current one.
_MOVES: Final = (
    events.UpdateStarted,
    events.UpdateResumed,
    events.PhaseEntered,
    events.UpdateDone,
    events.HostDegraded,
    events.UpdateFinished,
)


class Culprits(Protocol):
    """Programs that changed paths of this host."""

    # inotify names no process, so the answer comes from the audit log or the table of processes, and may be missing.
    async def of(self, paths: Collection[str]) -> Mapping[str, str]:
        """Return a description of the program that changed each path just now, as far as it is known."""
        ...


class PathChanges(Protocol):
    """Changes of paths of this host by any program."""

    async def watch(self, paths: Collection[str]) -> int:
        """Watch these paths instead of the previous ones. Returns how many of their directories are not watched."""
        ...

    async def wait(self) -> None:
        """Return when a path may have changed."""
        ...

    # inotify drops events when its queue is full. Then any path may have changed.
    def changed(self) -> Collection[str] | None:
        """Return the paths that may have changed since the last call; None if any may have: then ``watch`` again."""
        ...

    def close(self) -> None: ...


@dataclass(eq=False)
class DriftMonitor:
    """``sink`` is one of the report's. ``load`` returns a stored config. ``found`` is called when the drift changed."""

    ports: Ports
    watch: PathChanges
    culprits: Culprits
    reporter: Reporter
    load: Callable[[str], Awaitable[Desired]]
    found: Callable[[], None]
    notes: Notes
    _os: OsDrift = field(init=False)
    _moved: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    # The event only wakes the task. The number also shows an update that began and ended during a comparison.
    _moves: int = field(default=0, init=False)
    _name: str = field(default="", init=False)
    _drift: Drift = field(default=(), init=False)

    def __post_init__(self) -> None:
        self._os = OsDrift(self.ports, self.notes)

    def sink(self, event: Event, _status: Status) -> None:
        if isinstance(event, events.UpdateDone):
            self._os.applied = True
        if isinstance(event, _MOVES):
            self._moves += 1
            self._moved.set()

    async def run(self) -> None:
        """Never return. After an error it may be called again."""
        self._moved.set()
        try:
            while True:
                await self._moved.wait()
                self._moved.clear()
                if digest := await self._resting():
                    await self._follow(digest)
        finally:
            # A restarted task opens another inotify instance, of which the kernel allows a user 128 by default.
            self.watch.close()

    async def _resting(self) -> str:
        """Return the digest of the config that this host has, "" during an update and after half of one.

        An update that waits for its first write, maybe for days, has changed nothing.
        """
        record = await self.ports.store.load()
        if not isinstance(record.leg, Rest | Prepare) or record.unfinished or half_way(record):
            return ""
        return in_effect(record, await self.ports.store.current())

    async def _follow(self, digest: str) -> None:
        """Compare the host with this config until an update begins."""
        config = (await self.load(digest)).config
        entries = watched_paths(config)
        self._name = config.name
        # It may have many megabytes, and is needed for seconds in a week.
        del config
        clock = asyncio.get_running_loop().time
        while not self._moved.is_set():
            unwatched = await self.watch.watch(entries)
            self._show_unwatched(unwatched)
            # What changed before is compared now.
            self.watch.changed()
            if not await self._compare(digest, None):
                return
            pauses, quiet_since = delays(SETTLE, BUSY), clock()
            until = clock() + (COMPARE_ALL if self._os.known and not unwatched else COMPARE_UNWATCHED)
            while await self._wait(until - clock()):
                if clock() - quiet_since >= CALM:
                    pauses = delays(SETTLE, BUSY)
                paths, by = await self._settled(next(pauses))
                quiet_since = clock()
                if paths is None:
                    break
                by = {entry: who for path, who in by.items() for entry in entries[path]}
                changed = {entry for path in paths for entry in entries[path]}
                if paths and not await self._compare(digest, changed, by):
                    return

    async def _wait(self, timeout: float) -> bool:
        """Return whether managed paths may have changed; False after the timeout, or when an update begins."""
        async with running(self.watch.wait()) as changed:
            return await finished_before(changed, self._moved, timeout=max(0.0, timeout)) and not self._moved.is_set()

    async def _settled(self, pause: float) -> tuple[Collection[str] | None, Mapping[str, str]]:
        """Return the paths that changed until the end of ``pause``, and who changed them; None for any path."""
        first = self.watch.changed()
        # At once, because most programs end after their write; and again for the audit log, which is written later.
        by = dict(await self.culprits.of(first)) if first else {}
        await asyncio.sleep(pause)
        more = self.watch.changed()
        if first is None or more is None:
            return None, {}
        paths = {*first, *more}
        return paths, {**by, **(await self.culprits.of(paths) if paths else {})}

    async def _compare(
        self, digest: str, entries: Collection[str] | None, by: Mapping[str, str] = MappingProxyType({})
    ) -> bool:
        """Compare these entries, or all, and report what changed. Returns False if an update began during that."""
        moves = self._moves
        config = (await self.load(digest)).config
        wrong = await mismatches(self.ports, config if entries is None else only(config, entries), watched=True)
        if entries is None:
            wrong |= await self._os.compare(config)
            if name := await self._os.booted_since(digest):
                by = dict.fromkeys(await self._os.caused(config, wrong), f"the boot of {name}")
        missing = await UnitChecks(self.ports.units).missing(config) if entries is None else None
        # An update that began in between changes entries on purpose.
        if self._moves != moves or await self._resting() != digest:
            return False
        if missing is not None:
            self._show_missing(missing)
        drifted = updated(self._drift, entries, wrong, self.ports.clock.now(), by)
        if drifted != self._drift:
            self._drift = drifted
            if drifted:
                count = f"{len(drifted)} managed {'entry differs' if len(drifted) == 1 else 'entries differ'}"
                message = f"{count} from {self._name}: {describe_drift(drifted)}"
            else:
                message = f"no managed entry differs from {self._name} any more"
            reason = Reason.DRIFTED if drifted else ""
            self.reporter.emit(DriftChanged(self._name, tuple(drifted), message, reason))
            self.found()
        return True

    def _show_missing(self, missing: Sequence[Problem]) -> None:
        if missing:
            text = "; ".join(f"{problem.path} {problem.message}".strip() for problem in missing[:SHOWN])
            more = f"; {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
            self.reporter.problem(UNITS, InvalidInput(f"{text}{more}", reason=Reason.UNIT_MISSING))
        else:
            self.reporter.solved(UNITS, "each unit of the config exists")

    def _show_unwatched(self, count: int) -> None:
        if count:
            message = f"{count} directories are not watched; all managed paths are compared every 15 min instead"
            self.reporter.problem(TOPIC, Retryable(message, reason=DriftReason.NO_WATCH))
        else:
            self.reporter.solved(TOPIC, "all directories of managed paths are watched again")
