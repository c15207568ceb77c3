"""The end of an update, or of a request for one: one event, from which the bus makes ``UpdateFinished``.

A config that is replaced before an update to it began ends as well, and the client that waits for it is notified.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from nodeagent.core.plan.change import Plan
from nodeagent.errors import AgentError
from nodeagent.reasons import Reason
from nodeagent.update.events import PhaseEntered, UpdateFinished
from nodeagent.update.history.entry import entry_of, entry_of_request
from nodeagent.update.history.outcome import UpdateOutcome, exit_code
from nodeagent.update.lasting import left_by
from nodeagent.update.next.preflight import Desired
from nodeagent.update.next.unreadable import known_plan
from nodeagent.update.outcomes import OUTCOMES
from nodeagent.update.ports.host import Reporter
from nodeagent.update.ports.store import HistoryEntry
from nodeagent.update.record import Record, at_rest
from nodeagent.update.run import Ports, Takeover, Transition, Update, narrate


def finish(reporter: Reporter, entry: HistoryEntry, *, code: int | None = None, tried_again: bool = False) -> None:
    """``code`` is the exit status, where the error that ended it knows better than the outcome."""
    code = exit_code(entry.outcome, entry.reason) if code is None else code
    reporter.emit(UpdateFinished(entry, code, tried_again))


async def finish_update(ports: Ports, ended: Record, plan: Plan, to: Transition) -> None:
    """``ended`` is the record before it came to rest. The entry is in the history, except that of an update which
    changed nothing and is tried again."""
    newest = await ports.store.history(1)
    # The store closes an update and writes its entry in one transaction, so the newest entry is its end, if any.
    if newest and newest[0].update_id == ended.update_id:
        entry = newest[0]
    else:
        entry = entry_of(ended, plan, ports.clock.now(), UpdateOutcome.POSTPONED, to.reason, to.message)
    # The beginning of an update drops its request, so this one came later.
    request = await ports.store.request()
    failed = entry.outcome not in (UpdateOutcome.DONE, UpdateOutcome.DONE_AFTER_FALLBACK)
    tried_again = failed and request is not None and not request.cancel and request.digest == entry.to_digest
    finish(ports.reporter, entry, tried_again=tried_again)


async def takeover_by(ports: Ports, desired: Desired | None) -> Takeover:
    if desired is None:
        return Takeover(Reason.WITHDRAWN, "no config is desired any more")
    name = desired.config.name
    if desired.source.digest == await ports.store.current():
        return Takeover(Reason.WITHDRAWN, f"the current config {name} is desired again")
    return Takeover(Reason.SUPERSEDED, f"{name} is desired instead", name)


def cancelled_by(requester: str) -> Takeover:
    return Takeover(Reason.CANCELLED, f"cancelled by {requester}")


async def note_cancellation(ports: Ports, update: Update) -> None:
    """Note in ``update`` that an operator cancelled it, as recorded in the store, also before a restart."""
    request = await ports.store.request()
    # The digest is compared because the request may be for the config that is desired next, not for this update.
    if update.cancelled is None and request is not None and request.cancel and request.digest == update.desired_digest:
        update.cancelled = cancelled_by(request.requester)


def unusable(error: AgentError) -> Takeover:
    return Takeover(Reason.SUPERSEDED, f"the desired config cannot be used: {error}", usable=False)


async def close_interrupted(ports: Ports, record: Record, takeover: Takeover) -> Record:
    """Ends an update that was interrupted before anything was written, and does not begin again."""
    now = ports.clock.now()
    outcome, successor = OUTCOMES[takeover.reason], takeover.successor
    plan = known_plan(record)
    message = f"{takeover.message}; {left_by(record.lasting.partial, record.to_digest)}"
    entry = entry_of(record, plan, now, outcome, takeover.reason, message, successor=successor)
    rest = replace(at_rest(record), since=now, boot_id=ports.power.boot_id())
    # The store comes first: after a kill a client may miss the event, but the history never lacks the update.
    await ports.store.close_update(rest, entry)
    narrate(ports, rest, PhaseEntered)
    finish(ports.reporter, entry)
    return rest


@dataclass(slots=True)
class Requests:
    """The configs that a request made the desired one and that have no answer yet, by digest.

    ``running`` is the digest of the update under way, which reports its end itself; ``number`` counts the requests, so
    that a config that was read before a request does not end it.
    """

    ports: Ports
    running: str = ""
    number: int = 0
    _open: dict[str, tuple[int, str]] = field(default_factory=dict)

    def __contains__(self, digest: str) -> bool:
        return digest in self._open

    def add(self, desired: Desired) -> None:
        """To be called when the config is in place, and before anything else can read it."""
        self.number += 1
        self._open[desired.source.digest] = (self.number, desired.config.name)

    def forget(self, digest: str) -> None:
        self._open.pop(digest, None)

    def unchanged(self, desired: Desired) -> None:
        if desired.source.digest in self._open:
            self._end(desired.source.digest, UpdateOutcome.UNCHANGED, Takeover("", ""))

    async def replaced(self, number: int, digest: str, by: Takeover) -> None:
        """``digest`` is desired, as read after ``number`` requests."""
        # A request that came after the file was read is not replaced by it: its own config may be read a moment later.
        if not (gone := self._replaced(number, digest)):
            return
        try:
            partial = (await self.ports.store.load()).lasting.partial
            left = {other: f"; {left_by(partial, other)}" for other in gone}
        except AgentError:
            # What they left is not known, and the client still gets its answer.
            left = {}
        # An update to one of them may have begun in the meantime.
        for other in set(gone).intersection(self._replaced(number, digest)):
            self._end(other, OUTCOMES[by.reason], replace(by, message=f"{by.message}{left.get(other, '')}"))

    def _replaced(self, number: int, digest: str) -> list[str]:
        return [other for other, (at, _) in self._open.items() if at <= number and other not in (digest, self.running)]

    def _end(self, digest: str, outcome: UpdateOutcome, by: Takeover) -> None:
        _, name = self._open.pop(digest)
        now = self.ports.clock.now()
        entry = entry_of_request(name, digest, now, outcome, by.reason, by.message, successor=by.successor)
        finish(self.ports.reporter, entry)
