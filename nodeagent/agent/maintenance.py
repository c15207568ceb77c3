"""Maintenance: who asks for it gets the lease for as long as was asked for, with the node drained or the host powered
off if that was asked for too, and gives it back.

One task does everything (``run``), from a note in the store that is there before its effect: a kill, a restart and a
reboot find it and go on, and whoever asks or takes it back only changes the note. It works with whichever lease
the daemon has. A lease that was taken away ends the maintenance; what we cordoned is uncordoned when the node is free.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from nodeagent.agent.coordination import Operation, ignore_missing_node
from nodeagent.agent.report.report import Report
from nodeagent.agent.update.lease_watch import while_held
from nodeagent.agent.update.reboot import wait_for_blockers
from nodeagent.agent.update.run import Limits, Ports
from nodeagent.core.coordination.maintenance import (
    POWER_OFF_TRIES,
    Maintenance,
    MaintenanceState,
    is_maintenance,
    later,
    left,
    of_lease,
)
from nodeagent.core.update.events import Event, EventKind
from nodeagent.errors import AgentError, InvalidInput, Refused, Retryable, ServiceUnavailable

__all__ = ["Asked", "Keeper", "Notes"]

LOOK: Final = 60.0
"""Seconds between two looks whether the lease is still ours. Nothing relies on it: each step looks itself."""

ANSWER: Final = 60.0
"""Seconds in which who asked gets an answer, whatever the lease does meanwhile."""

LEAST: Final = 15.0
"""Seconds for which is drained at least, also when the deadline passed while the agent was away."""

LONGEST: Final = 366 * 86400.0
WORDS: Final = 500  # characters of a reason: it stands in every status, and in an annotation

_OVER: Final = ("LeaseLost", "LeaseGivenBack", "LeaseHeld")
"""What a lease says that is not ours any more. One that ran out while the API server was away is asked for again."""


class Notes(Protocol):
    """Durable when the call returns."""

    async def maintenance(self) -> Maintenance | None: ...

    async def keep_maintenance(self, wanted: Maintenance | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Asked:
    """``seconds`` is 0 for "until a person stops it". ``wait``: where the lease is somebody else's, it is taken when
    it is free, before any update."""

    reason: str
    requester: str = ""
    seconds: float = 0.0
    drain: bool = False
    power_off: bool = False
    wait: bool = False

    def check(self) -> None:
        if not self.reason.strip():
            raise InvalidInput("say why", reason="NoReason")
        if not 0 <= self.seconds <= LONGEST:
            raise InvalidInput(f"a maintenance lasts {LONGEST / 86400:.0f} days at most", reason="BadDuration")
        for text in (self.reason, self.requester):
            if len(text) > WORDS or not text.isprintable():
                raise InvalidInput(f"one line of {WORDS} characters at most", reason="BadText")


class Keeper:
    """``limits`` gives the present ones, and ``freed`` is told when the lease is free again."""

    def __init__(
        self,
        ports: Ports,
        notes: Notes,
        report: Report,
        *,
        limits: Callable[[], Limits],
        freed: Callable[[], None],
    ) -> None:
        self._ports = ports
        self._notes = notes
        self._coordination = ports.coordination
        self._report = report
        self._limits = limits
        self._freed = freed
        self._note: Maintenance | None = None
        self._adopted = ""  # operation that this process has the lease for
        self._impatient = ""  # operation that is dropped where it cannot begin at once
        self._fault: AgentError | None = None  # of the last look
        self._waits = ""
        self._away: float | None = None  # steady time since when a service of this host does not answer
        self._wake = asyncio.Event()
        self._news = asyncio.Event()
        self._changing = asyncio.Lock()  # from reading the note until its successor is in the store

    # What people ask for.

    async def start(self, caller: str, asked: Asked) -> Maintenance:
        """Returns when it has begun; with ``wait``, when it is noted. Raises ``Refused`` (``LeaseHeld``, ``NoCluster``,
        ``MaintenanceEnding``), ``InvalidInput``, and what the lease raises; then nothing is left of it."""
        asked.check()
        if asked.drain and self._ports.node is None:
            raise Refused("there is no cluster that this host could be drained in", reason="NoCluster")
        name = asked.requester.strip() or caller
        name = name if name == caller else f"{name} (by {caller})"
        async with self._changing:
            there = self._note
            note = self._wanted(there, name, asked)
            await self._put(note, f"asked for by {note.words}")
            if there is not None:
                self._adopted = ""  # its end is another one
            else:
                self._impatient = "" if asked.wait else note.operation
                self._fault = None
        self._wake.set()
        await self._until(lambda: self._note is None or bool(self._note.began) or self._patient())
        return self._answer() or note

    def _wanted(self, there: Maintenance | None, name: str, asked: Asked) -> Maintenance:
        now = self._ports.clock.now()
        until = later(now, asked.seconds) if asked.seconds else ""
        what: dict[str, Any] = {"until": until, "drain": asked.drain, "power_off": asked.power_off}
        if there is None:
            return Maintenance(uuid.uuid4().hex[:8], name, asked.reason.strip(), now, **what)
        if there.ended:
            raise Refused(f"the one before is still being ended: {self._waits}", reason="MaintenanceEnding")
        if there.requester != name:
            raise Refused(_held(there), reason="LeaseHeld")
        return there.again(**what)

    def _answer(self) -> Maintenance | None:
        if (self._note is None or self._note.ended) and self._fault is not None:
            raise self._fault
        return self._note

    def _patient(self) -> bool:
        """It was seen that it has to wait, and that is what was asked for."""
        return bool(self._waits) and not self._impatient

    async def stop(self, caller: str) -> None:
        """Returns when the lease is given back. Raises ``Refused`` (``NoMaintenance``), and ``Retryable``
        (``MaintenanceEnding``) if that goes on by itself."""
        if self._note is None:
            raise Refused("no maintenance is under way", reason="NoMaintenance")
        self._fault = None
        await self._end(f"stopped by {caller}")
        self._wake.set()
        await self._until(lambda: self._note is None or self._fault is not None)
        self._ended()

    def _ended(self) -> None:
        if self._note is not None:
            why = self._fault.message if self._fault is not None else "it takes long"
            raise Retryable(f"it is being stopped, and that goes on by itself: {why}", reason="MaintenanceEnding")

    async def _until(self, so: Callable[[], bool]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER):
                while not so():
                    await self._news.wait()

    # The one task.

    async def load(self) -> None:
        """Before anything else of ours may take the lease."""
        note = await self._notes.maintenance()
        if note is None and self._coordination.backend == "local":
            holder = await self._coordination.holder()
            if holder is not None and is_maintenance(holder.operation):
                note = of_lease(holder.operation, holder.name, holder.reason, holder.since)
        if note is not None:
            self._use(note)

    async def run(self) -> None:
        """For ever."""
        while True:
            self._wake.clear()
            delay = await self._look()
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._wake.wait()

    async def _look(self) -> float | None:
        """Seconds after which to look again; None: when somebody asks."""
        try:
            while (note := self._note) is not None and await self._step(note):
                self._waits = ""
            self._away = None
        except AgentError as error:
            self._fault = error
            since = self._ports.clock.monotonic() if self._away is None else self._away
            self._away = since if isinstance(error, ServiceUnavailable) else None
            again = False
            with suppress(AgentError):  # a store that takes nothing: the fault stays, and the next look tries again
                again = await self._met(error)
            self._tell_who_waits()
            return None if self._note is None else 0.0 if again else self._limits().lease_retry
        if (note := self._note) is None:
            return None
        rest = left(note.until, self._ports.clock.now())
        return LOOK if rest is None else max(0.0, min(LOOK, rest))

    def _tell_who_waits(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _step(self, note: Maintenance) -> bool:
        """The one thing to do next. False if there is nothing, or if somebody asked for something else meanwhile."""
        rest = left(note.until, self._ports.clock.now())
        if note.ended:
            return await self._give_back(note)
        if rest is not None and rest <= 0:
            await self._replace(note, ended="its time is over")
            return True
        if not note.began:
            await self._begin(note, rest)
            return True
        if self._adopted != note.operation:
            await self._hold(note, rest)
            return True
        await self._coordination.check_lease(note.operation)
        match note.state(self._ports.power.boot_id()):
            case MaintenanceState.DRAINING:
                return await self._unless_asked(self._drain(note))
            case MaintenanceState.POWERING_OFF:
                return await self._unless_asked(self._go_off(note))
            case _:
                return False

    async def _begin(self, note: Maintenance, rest: float | None) -> None:
        await self._hold(note, rest)
        self._impatient = ""
        await self._change(f"begun: {note.words}", began=self._ports.clock.now())

    async def _hold(self, note: Maintenance, rest: float | None) -> None:
        await self._coordination.acquire(_operation(note))
        await self._coordination.extend_lease(note.operation, rest)
        self._adopted = note.operation

    async def _drain(self, note: Maintenance) -> None:
        node = self._ports.node
        assert node is not None
        await self._nobody_else(note)
        now = self._ports.clock.now()
        by = note.drain_by or later(now, self._limits().drain_timeout)
        if not note.drain_by:
            await self._change("", drain_by=by)
        await node.drain(note.operation, max(left(by, now) or 0.0, LEAST))
        await self._change("the node is drained", drained=self._ports.clock.now())

    async def _go_off(self, note: Maintenance) -> None:
        """Marker before effect: the boot that is asked to end is noted, so whatever boots next is the way back up."""
        if note.tries >= POWER_OFF_TRIES:
            raise Refused(f"asked for a power-off {note.tries} times, none came", reason="PowerOffFailed")
        limits, coordination, committed = self._limits(), self._coordination, asyncio.Event()
        power = self._ports.power
        # Without logind nothing reports inhibitors; systemd takes the host down without it.
        direct = self._away is not None and self._ports.clock.monotonic() - self._away >= limits.service_wait

        async def confirm() -> None:
            await coordination.check_lease(note.operation)
            await self._nobody_else(note)
            committed.set()

        async with while_held(coordination, note.operation, committed):
            force = direct or await wait_for_blockers(
                self._ports, limits, "power-off", "PowerOffBlocked", self._blocked
            )
            await self._nobody_else(note)
            await coordination.move_etcd_leader()
            await coordination.extend_lease(note.operation, left(note.until, self._ports.clock.now()))
            await self._change("powering off", off_boot=power.boot_id())
            await power.power_off(
                f"nodeagent: {note.words}", warn=limits.warn_users, force=force, confirm=confirm, direct=direct
            )
        # Only a power-off that was accepted counts: a logind that does not answer is no host that cannot go off.
        await self._change("powering off", tries=note.tries + 1)
        # logind said yes; the host goes down under us. If it does not, we ask again, a few times.
        await asyncio.sleep(limits.reboot_grace)

    async def _nobody_else(self, note: Maintenance) -> None:
        """Raises ``Refused`` while somebody who takes no lease works on this node, or what runs here is missed."""
        await self._coordination.check_others(stops_node=note.power_off)

    def _blocked(self, _kind: EventKind, words: str) -> None:
        self._waits = words
        self._tell(words)

    async def _give_back(self, note: Maintenance) -> bool:
        """In reverse. Not while another one has the node by now: its cordon may be ours."""
        if note.drain and self._ports.node is not None:
            await self._coordination.check_free(note.operation)
            await ignore_missing_node(self._ports.node.uncordon(note.operation))
        await self._coordination.release(_operation(note))
        why = note.ended
        await self._notes.keep_maintenance(None)
        self._note, self._adopted, self._waits = None, "", ""
        self._coordination.reserve("", "")
        self._tell(f"over: {why}")
        self._freed()
        return False

    async def _met(self, error: AgentError) -> bool:
        """What a fault means for the note. True if there is something else to do at once."""
        note = self._note
        if note is None:
            return False
        words = f"{error.reason}: {error.message}"
        if not note.ended and self._impatient == note.operation:
            await self._replace(note, ended=words)
            self._impatient = ""
            return True  # also where nothing was taken: a write without an answer may have been done
        if not note.ended and note.began and error.reason in _OVER:
            await self._replace(note, words, ended=words)
            return True
        if self._adopted == note.operation and not note.ended and error.reason in _GIVEN_UP:
            await self._replace(note, words, problem=words)
            return True
        if words != self._waits:
            self._waits = words
            self._tell(words)
        return False

    async def _unless_asked(self, work: Coroutine[Any, Any, None]) -> bool:
        """True if it was done. Given up when somebody asks for something: the note may be another one."""
        task = asyncio.create_task(work)
        asked = asyncio.create_task(self._wake.wait())
        try:
            await asyncio.wait({task, asked}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
                return True
            return False
        finally:
            for each in (task, asked):
                each.cancel()
            await asyncio.gather(task, asked, return_exceptions=True)

    # The note.

    async def _change(self, words: str, **fields: Any) -> None:
        """Of the note as it is now: a request may have replaced the one that the caller began with."""
        async with self._changing:
            if self._note is not None:
                await self._put(replace(self._note, **fields), words)

    async def _replace(self, note: Maintenance, words: str = "", **fields: Any) -> None:
        """Nothing if a request has replaced ``note`` since it was read."""
        async with self._changing:
            if self._note is note:
                await self._put(replace(note, **fields), words)

    async def _end(self, why: str) -> None:
        async with self._changing:
            if self._note is not None and not self._note.ended:
                await self._put(replace(self._note, ended=why))

    async def _put(self, note: Maintenance, words: str = "") -> None:
        """The store first: a note that it does not take must leave no trace in memory, where it would block updates.
        The caller holds ``_changing``."""
        await self._notes.keep_maintenance(note)
        self._use(note, words)

    def _use(self, note: Maintenance, words: str = "") -> None:
        self._note = note
        self._coordination.reserve(note.operation, _held(note))
        self._tell(words)

    def _tell(self, words: str) -> None:
        status = self._report.status
        fields: dict[str, object] = {"maintenance": self._note, "waits": self._waits}
        if self._note is not None:
            fields |= {"requester": self._note.requester, "why": self._note.reason, "until": self._note.until}
        self._report.emit(Event(EventKind.MAINTENANCE, status.phase, words, fields=fields))
        self._tell_who_waits()


_GIVEN_UP: Final = frozenset({"DrainTimedOut", "DrainRefused", "DrainCanceled", "PowerOffBlocked", "PowerOffFailed"})
"""What a person decides about: the maintenance goes on without it, and asking again tries it again."""


def _operation(note: Maintenance) -> Operation:
    return Operation(note.operation, note.requester, note.reason, queued=False)


def _held(note: Maintenance) -> str:
    since = note.began or note.since
    until = f" until {note.until}" if note.until else ""
    state = "holds the lease on this host" if note.began else "has asked for the lease on this host"
    return f"{note.requester} {state} since {since}{until} for maintenance ({note.reason})"
