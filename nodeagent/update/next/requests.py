# SPDX-License-Identifier: Apache-2.0
"""The requests for configs that have no answer yet, and what takes the place of an update."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from nodeagent.errors import AgentError
from nodeagent.reasons import Reason
from nodeagent.update import keeper
from nodeagent.update.history.ends import OUTCOMES, finish_request
from nodeagent.update.history.lasting import left_by
from nodeagent.update.history.outcome import UpdateOutcome
from nodeagent.update.next.preflight import Desired
from nodeagent.update.next.unreadable import known_plan
from nodeagent.update.record import Record
from nodeagent.update.run import Ports, Takeover, Update
from nodeagent.update.stages.admission import is_withdrawn


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
    if update.record.reboot is not None:
        if update.cancelled is None and is_withdrawn(ports, update.record):
            update.cancelled = Takeover(Reason.CANCELLED, f"the {update.record.reboot.words} was cancelled")
        return
    request = await ports.store.request()
    # The digest is compared because the request may be for the config that is desired next, not for this update.
    if update.cancelled is None and request is not None and request.cancel and request.digest == update.desired_digest:
        update.cancelled = cancelled_by(request.requester)


def unusable(error: AgentError) -> Takeover:
    return Takeover(Reason.SUPERSEDED, f"the desired config cannot be used: {error}", usable=False)


async def close_interrupted(ports: Ports, record: Record, takeover: Takeover) -> Record:
    """End an update that was interrupted before anything was written, and does not begin again."""
    return await keeper.close(ports, record, known_plan(record), takeover)


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
        finish_request(self.ports, name, digest, outcome, by.reason, by.message, successor=by.successor)
