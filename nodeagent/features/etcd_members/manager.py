# SPDX-License-Identifier: Apache-2.0
"""Join, leave and replace: changes of the membership of etcd by the member on this host.

One task (``MemberManager.run``) carries an operation out: facts, next step, record, effect, and again. The store has
the operation before its first effect, and the facts show what was done, so that a kill at any point is continued. A
leave and a replacement hold the lease until they end, because the cluster has a member less.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Final, Protocol

from nodeagent.core.etcd.data_directory import Identity
from nodeagent.core.etcd.quorum import Refusal
from nodeagent.errors import AgentError, Cause, InvalidInput, Refused, Terminal, error_of
from nodeagent.features.etcd_members.decide.member_facts import MemberFacts
from nodeagent.features.etcd_members.decide.membership import (
    LEASE_PREFIX,
    NOTE_KEY,
    OPERATION_KEY,
    AddLearner,
    Finished,
    MemberNote,
    MemberOperation,
    MemberRequest,
    OperationKind,
    RemoveMember,
    StartMember,
    Step,
    begin,
    describe,
    next_step,
    note_from_text,
    operation_from_text,
    to_text,
    unattended_kind,
)
from nodeagent.features.etcd_members.events import EtcdMemberChanged, MemberProgress
from nodeagent.features.etcd_members.reasons import MemberReason
from nodeagent.reasons import Reason
from nodeagent.tasks import pause
from nodeagent.update.ports.host import Clock, Reporter
from nodeagent.update.ports.store import Notes
from nodeagent.update.stages.coordination import Coordination, Operation

# Seconds between two steps that have to wait. etcd refuses changes for five seconds after each change.
PAUSE: Final = 1.0

# Seconds between two checks whether an unattended host has to do something.
POLL: Final = 60.0

# A client that waits reads this word in ``ended``; any other text there is a reason.
DONE: Final = "done"
TOPIC: Final = "etcd"

# Seconds without a step after which a join is given up. A snapshot of the largest keyspaces (8 GiB) takes minutes.
GIVE_UP: Final = 1800.0

# Seconds for a whole operation, as a multiple of the above: steps may alternate, each of which is progress.
OVERALL: Final = 6


class MemberPort(Protocol):
    """The member on this host, and its cluster."""

    @property
    def unattended(self) -> bool: ...

    async def facts(self, note: Identity | None) -> MemberFacts: ...

    async def problem(self) -> Refusal | None: ...

    async def do(self, step: Step) -> str: ...


@dataclass(eq=False)
class MemberManager:
    """``open_member`` reads the settings of the member, and returns None if there are none. ``give_up`` in seconds."""

    coordination: Coordination
    clock: Clock
    store: Notes
    report: Reporter
    open_member: Callable[[], Awaitable[MemberPort | None]]
    _: KW_ONLY
    on_release: Callable[[], None]
    pause: float = PAUSE
    poll: float = POLL
    give_up: float = GIVE_UP
    _current: MemberOperation | None = field(default=None, init=False)
    _waits: str = field(default="", init=False)
    _last: Step | None = field(default=None, init=False)
    # Steady times: of the operation, and of the first attempt of its last step.
    _began: float = field(default=0.0, init=False)
    _progressed: float = field(default=0.0, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _busy: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def load(self) -> None:
        """Load the stored operation. Raises ``Terminal`` (``StoreCorrupt``)."""
        try:
            self._current = operation_from_text(await self.store.note(OPERATION_KEY))
        except (ValueError, TypeError, KeyError) as error:
            raise Terminal(f"the stored operation of etcd: {error}", reason=Reason.STORE_CORRUPT) from error
        self._began = self._progressed = self.clock.monotonic()
        if self._current is not None:
            self._emit(self._current, "continues after a restart of the agent")

    async def start(self, caller: str, request: MemberRequest) -> MemberOperation:
        """Begin an operation. Return when its first step is possible.

        Raises ``Refused`` and the reasons of the first step; then nothing was changed.
        """
        member = await self._opened()
        async with self._busy:
            if self._current is not None:
                what = f"{self._current.kind} of the etcd member is in progress, for {self._current.requester}"
                raise Refused(what, reason=MemberReason.ETCD_CHANGING)
            operation = await self._possible(member, caller, request)
            # The operation is stored before its lease is acquired: a kill in between leaves an operation that the next
            # start continues, and never a lease that no program releases.
            await self._keep(operation)
            self._began = self._progressed = self.clock.monotonic()
            if _holds_lease(operation):
                try:
                    await self.coordination.acquire(_lease(operation))
                except AgentError:
                    await self._drop(operation)
                    raise
        self._emit(operation, f"requested by {caller}")
        self._wake.set()
        return operation

    async def _opened(self) -> MemberPort:
        member = await self.open_member()
        if member is None:
            message = "this host has no settings for a member of etcd"
            raise InvalidInput(message, reason=MemberReason.ETCD_NOT_CONFIGURED)
        return member

    async def _possible(self, member: MemberPort, caller: str, request: MemberRequest) -> MemberOperation:
        facts = await member.facts((await self._note()).identity)
        wanted = MemberOperation(uuid.uuid4().hex[:8], request.kind, caller, self.clock.now())
        operation = begin(wanted, facts, request.member)
        if isinstance(operation, Refusal):
            raise _error(operation)
        if isinstance(step := await self._next(member, operation, facts), Refusal):
            raise _error(step)
        return operation

    async def _drop(self, operation: MemberOperation) -> None:
        if _holds_lease(operation):
            await self.coordination.release(_lease(operation))
        await self._keep(None)

    async def run(self) -> None:
        while True:
            self._wake.clear()
            delay = self.poll
            try:
                delay = await self._advance()
            except AgentError as error:
                if self._current is None:
                    self.report.problem(TOPIC, error)
                else:
                    self._wait(error)
                    delay = self.pause
            await pause(delay, self._wake)

    async def _advance(self) -> float:
        """Do what can be done now. Return the seconds until the next attempt."""
        if self._current is None and not await self._begin_unattended():
            self.report.solved(TOPIC, "the etcd member of this host is as it should be")
            return self.poll
        while (operation := self._current) is not None:
            try:
                waits = await self._round(operation)
            except AgentError as error:
                # A fault counts against the deadlines as a refusal does: a learner must not stay in the cluster while a
                # peer is away.
                waits = Refusal(error.reason, error.message)
            if waits is not None:
                self._wait(_error(waits))
            if (refusal := self._late(waits)) is not None and self._current is not None:
                await self._fail(self._current, refusal)
            elif waits is not None:
                return self.pause
        return 0.0

    def _late(self, waits: Refusal | None) -> Refusal | None:
        """Return why the operation is given up now."""
        now, limit = self.clock.monotonic(), OVERALL * self.give_up
        if now - self._began > limit:
            return waits or Refusal(Reason.TRY_AGAIN, f"its steps alternate, and it is not done after {limit:.0f} s")
        return waits if now - self._progressed > self.give_up else None

    async def _begin_unattended(self) -> bool:
        member = await self.open_member()
        if member is None:
            return False
        note = await self._note()
        facts = await member.facts(note.identity)
        if not note.left and facts.data.identity is not None and facts.data.identity != note.identity:
            await self._adopt(facts)
        if not member.unattended:
            return False
        kind = unattended_kind(facts, left=note.left)
        if kind is None:
            return False
        if isinstance(kind, Refusal):
            raise _error(kind)
        await self.start("the agent", MemberRequest(kind))
        return True

    async def _adopt(self, facts: MemberFacts) -> None:
        """Take the note of a member that was started without this agent, once its data are those of a listed member."""
        # A join has nothing to do only where the data are those of a listed member that runs.
        step = next_step(MemberOperation("", OperationKind.JOIN, "", ""), facts)
        if isinstance(step, Finished) and step.identity is not None:
            await self._keep_note(MemberNote(step.identity.member, step.identity.cluster))

    async def _round(self, operation: MemberOperation) -> Refusal | None:
        """Do one step. Return why there is none."""
        member = await self._opened()
        if _holds_lease(operation):
            # Acquired in each round, because a restarted agent does not know whether the lease is still its own.
            await self.coordination.acquire(_lease(operation))
        step = await self._next(member, operation, await member.facts((await self._note()).identity))
        if isinstance(step, Refusal):
            return step
        if isinstance(step, Finished):
            identity = step.identity
            left = operation.kind is OperationKind.LEAVE and identity is None
            await self._keep_note(MemberNote(identity.member, identity.cluster) if identity else MemberNote(left=left))
            await self._end(operation, operation.failed)
            return None
        # A step that is due again had no effect so far, so only another one is progress.
        repeated, self._last = step == self._last, step
        if not repeated:
            self._progressed = self.clock.monotonic()
            self._emit(operation, describe(step))
        # From here on a refusal releases nothing: the step may have its effect without an answer.
        operation = replace(operation, begun=True)
        await self._keep(operation)
        # The note comes before the start: `etcd prepare` starts no member whose data the note does not know while no
        # peer answers.
        if isinstance(step, StartMember):
            if step.first and not operation.added:
                # The answer to its addition was lost.
                await self._keep(replace(operation, added=step.identity.member))
            await self._keep_note(MemberNote(step.identity.member, step.identity.cluster))
        added = await member.do(step)
        if isinstance(step, AddLearner):
            await self._keep(replace(operation, added=added))
        if isinstance(step, RemoveMember):
            # It is no member any more, and not by another actor.
            await self._keep_note(MemberNote(left=operation.kind is OperationKind.LEAVE))
        return Refusal(Reason.TRY_AGAIN, f"{describe(step)}, again") if repeated else None

    async def _next(self, member: MemberPort, operation: MemberOperation, facts: MemberFacts) -> Step | Refusal:
        step = next_step(operation, facts)
        # The checks are made right before the addition, which is the first step that the cluster notices: a learner
        # that never starts blocks the next join.
        if isinstance(step, AddLearner) and (problem := await member.problem()) is not None:
            return problem
        return step

    async def _fail(self, operation: MemberOperation, refusal: Refusal) -> None:
        """Give up. A learner that was added is removed first: it would block the next join."""
        # The removal of the learner has the whole time again.
        self._began = self._progressed = self.clock.monotonic()
        failed = operation.failed or Cause(refusal.reason, refusal.message)
        if operation.added and not operation.failed:
            await self._keep(replace(operation, failed=failed, remove=operation.added))
            self._emit(self._current, f"given up: {failed}")
        else:
            await self._end(operation, failed)

    async def _end(self, operation: MemberOperation, failed: Cause | None) -> None:
        await self._drop(operation)
        self._waits = ""
        reason = failed.reason if failed else ""
        self._emit(operation, f"failed: {failed}" if failed else "done", ended=str(failed or DONE), reason=reason)
        self.on_release()

    async def _note(self) -> MemberNote:
        try:
            return note_from_text(await self.store.note(NOTE_KEY))
        except (ValueError, TypeError, KeyError) as error:
            raise Terminal(f"the note of the etcd member: {error}", reason=Reason.STORE_CORRUPT) from error

    async def _keep_note(self, note: MemberNote) -> None:
        await self.store.keep_note(NOTE_KEY, "" if note == MemberNote() else to_text(note))

    async def _keep(self, operation: MemberOperation | None) -> None:
        # First the store: what it does not take must have no effect.
        await self.store.keep_note(OPERATION_KEY, "" if operation is None else to_text(operation))
        self._current = operation

    def _wait(self, error: AgentError) -> None:
        message = str(error.cause)
        if message != self._waits:
            self._waits = message
            self._emit(self._current, message)

    def _emit(self, operation: MemberOperation | None, message: str, *, ended: str = "", reason: str = "") -> None:
        progress = None
        if operation is not None:
            about = (operation.id, str(operation.kind), operation.requester, operation.since)
            progress = MemberProgress(*about, message=message, ended=ended, reason=reason)
        self.report.emit(EtcdMemberChanged(progress, message))


def _holds_lease(operation: MemberOperation) -> bool:
    """Return whether redundancy is less until the operation ends."""
    return operation.kind is not OperationKind.JOIN


def _lease(operation: MemberOperation) -> Operation:
    """The quorum is checked by the facts of each step: the member of this host may be gone already."""
    reason = f"{operation.kind} of the etcd member"
    return Operation(f"{LEASE_PREFIX}{operation.id}", operation.requester, reason, keeps=operation.begun)


def _error(refusal: Refusal) -> AgentError:
    return error_of(refusal.reason, refusal.message)
