# SPDX-License-Identifier: Apache-2.0
"""The places of busy pods in the course of an update and of a maintenance.

They are looked for before anything is taken, and again with the slot and the lease, because a pod may have started in
between; an update gives both back then. Once the work has begun they hold nothing: the node is cordoned, and what a
drain meets leaves in its grace period. A revert waits for nothing either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import msgspec

from nodeagent import typed
from nodeagent.errors import AgentError, Refused
from nodeagent.features.busy_pods.events import BusyPod, BusyPodsFound, HeldByPods
from nodeagent.features.busy_pods.reasons import BusyReason
from nodeagent.features.busy_pods.settings import BusyPodSettings
from nodeagent.update.ports.host import Clock, Reporter
from nodeagent.update.ports.store import Notes
from nodeagent.update.run import Run, Update
from nodeagent.update.stages.guard import Guard

# The option of a request. Its only value is evict.
OPTION: Final = "busy_pods"

# The note with the work that is held off.
NOTE: Final = "busy-pods"

# Seconds between two writes of the note while the work is held off.
WRITE_EVERY: Final = 300.0

# Seconds without a check after which a wait counts no further. The pauses between two checks are a minute at most.
UNSEEN: Final = 900.0


@dataclass(frozen=True, slots=True)
class HeldWork:
    """For how many seconds ``work`` was held off, up to ``seen`` on the steady clock of ``boot``."""

    work: str
    boot: str
    seen: float
    waited: float = 0.0

    def again(self, now: float, boot: str) -> HeldWork:
        """Return it after another check at ``now`` that held it off. Time without a check does not count."""
        passed = now - self.seen if boot == self.boot else 0.0
        return replace(self, boot=boot, seen=now, waited=self.waited + (passed if passed <= UNSEEN else 0.0))

    def is_over(self, now: float, boot: str) -> bool:
        """Return whether nothing waits any more, where no update is under way."""
        return boot != self.boot or now - self.seen > UNSEEN


def held_text(held: HeldWork) -> str:
    return msgspec.json.encode(held, order="sorted").decode()


def held_of(text: str) -> HeldWork | None:
    """Return what ``held_text`` wrote, None for another text: then the wait begins again."""
    try:
        return typed.from_json(text, HeldWork)
    except ValueError:
        return None


class BusyPods(Protocol):
    settings: BusyPodSettings

    async def running(self) -> Sequence[BusyPod]:
        """Return the pods that hold work off, sorted. Raises ``Refused`` if that is not known."""
        ...


class BusyGuard(Guard):
    """``boot_id`` returns the identity of this boot."""

    def __init__(
        self, pods: BusyPods, notes: Notes, clock: Clock, boot_id: Callable[[], str], reporter: Reporter
    ) -> None:
        self._pods = pods
        self._wait = _Wait(notes, clock, boot_id)
        self._reporter = reporter
        # Whether the status has pods.
        self._shown = False
        # What the settings let begin although pods run.
        self._overrun = ""

    async def planned(self, update: Update, *, stops_node: bool) -> Sequence[str]:  # noqa: ARG002 - etcd stops no pod
        settings = self._pods.settings
        if not settings.selectors or not (update.plan.drain or update.plan.reboot):
            return ()
        where = f" in {', '.join(settings.namespaces)}" if settings.namespaces else ""
        note = f"busy pods: the update begins when no pod of this node matches {' or '.join(settings.selectors)}{where}"
        try:
            pods = await self._pods.running()
        except AgentError as error:
            return [note, f"busy pods: {error.message}"]
        return [note, f"busy pods: {HeldByPods(tuple(pods), settings.longest_wait).message}"] if pods else [note]

    async def permit_begin(self, work: str, options: Mapping[str, str]) -> None:
        """Raises ``Refused`` (``BusyPods``), and as ``BusyPods.running``."""
        self._overrun = ""
        if options.get(OPTION) or not self._pods.settings.selectors:
            self._show(None)
            return
        pods = await self._pods.running()
        if not pods:
            self._show(None)
            await self._wait.end()
            return
        longest = self._pods.settings.longest_wait
        held = HeldByPods(tuple(pods), longest)
        # Counted only where the wait has an end: without one, nothing is written to the store.
        if longest and await self._wait.waited(work) >= longest:
            self._show(None)
            self._overrun = held.message
            return
        self._show(held)
        error = Refused(held.message, reason=BusyReason.BUSY_PODS)
        # The pods change, and the wait is the same.
        error.subject = "pods"
        raise error

    async def permit(self, run: Run) -> None:
        if self._overrun:
            run.report_failure("busy pods", f"continuing: {self._overrun}", BusyReason.BUSY_PODS)

    # The host is half-way. Its pods go on after a revert, which needs no reboot.
    async def permit_fallback(self, run: Run) -> None:
        """Raises ``Refused`` (``BusyPods``). Without an answer the host does not stay half-way either."""
        if run.hold is not None and run.hold.options.get(OPTION):
            return
        try:
            pods = await self._pods.running()
        except Refused as error:
            run.report_failure("busy pods", f"continuing: {error.message}", error.reason)
            return
        if pods:
            raise Refused(HeldByPods(tuple(pods), 0).message, reason=BusyReason.BUSY_PODS)

    async def rest(self) -> float | None:
        """Forget what waited, when nothing has for a while. Return the seconds until it may be forgotten."""
        return await self._wait.forget()

    def _show(self, held: HeldByPods | None) -> None:
        if held is not None or self._shown:
            self._reporter.emit(BusyPodsFound(held))
            self._shown = held is not None


class _Wait:
    """How long pods hold work off. It is stored, so that a restart of the agent does not begin it again."""

    def __init__(self, notes: Notes, clock: Clock, boot_id: Callable[[], str]) -> None:
        self._notes = notes
        self._clock = clock
        self._boot_id = boot_id
        self._held: HeldWork | None = None
        self._read = False
        # When the note was written, on the steady clock.
        self._written = float("-inf")

    async def waited(self, work: str) -> float:
        """Record that ``work`` is held off now. Return for how many seconds it was so far."""
        held, now, boot = await self._load(), self._clock.monotonic(), self._boot_id()
        if held is None or held.work != work:
            await self._keep(HeldWork(work, boot, now))
            return 0.0
        self._held = held = held.again(now, boot)
        # A wait of days must not wear the disk; a kill loses these minutes at most.
        if now - self._written >= WRITE_EVERY:
            await self._keep(held)
        return held.waited

    async def end(self) -> None:
        if await self._load() is not None:
            await self._keep(None)

    async def forget(self) -> float | None:
        held = await self._load()
        if held is None:
            return None
        if held.is_over(self._clock.monotonic(), self._boot_id()):
            await self._keep(None)
            return None
        return UNSEEN

    async def _load(self) -> HeldWork | None:
        if not self._read:
            self._held = held_of(await self._notes.note(NOTE))
            self._read = True
        return self._held

    async def _keep(self, held: HeldWork | None) -> None:
        await self._notes.keep_note(NOTE, "" if held is None else held_text(held))
        self._held, self._written = held, self._clock.monotonic()
