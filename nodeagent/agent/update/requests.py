"""The configs that were made the desired one by a request, and did not get an answer yet.

A config that is replaced before an update to it began ends without one, and the client that waits for it is notified.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nodeagent.agent.update.finishing import finish
from nodeagent.agent.update.outcomes import OUTCOMES
from nodeagent.agent.update.preflight import Desired
from nodeagent.agent.update.run import Ports, Takeover
from nodeagent.core.report.history import entry_of_request
from nodeagent.core.update.outcome import UpdateOutcome

__all__ = ["Requests"]


@dataclass(slots=True)
class Requests:
    """By digest. ``running`` is the digest of the update under way, which reports its end itself; ``number`` counts
    the requests, so that a config that was read before a request does not end it."""

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

    def replaced(self, number: int, digest: str, by: Takeover) -> None:
        """``digest`` is desired, as read after ``number`` requests."""
        for other, (at, _) in list(self._open.items()):
            if at <= number and other not in (digest, self.running):
                self._end(other, OUTCOMES[by.reason], by)

    def _end(self, digest: str, outcome: UpdateOutcome, by: Takeover) -> None:
        _, name = self._open.pop(digest)
        now = self.ports.clock.now()
        entry = entry_of_request(name, digest, now, outcome, by.reason, by.message, successor=by.successor)
        finish(self.ports.reporter, entry)
