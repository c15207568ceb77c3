"""The message of the status during a wait inside a phase: its cause and its end."""

from __future__ import annotations

from collections.abc import Callable

from nodeagent.agent.update.run import Ports, Update
from nodeagent.core.coordination.maintenance import add_seconds
from nodeagent.core.once import Once
from nodeagent.core.update.events import PhaseEntered

__all__ = ["Progress", "progress_of", "time_of"]

# Called with words and a deadline on the steady clock, as often as one likes.
Progress = Callable[[str, float], None]


def time_of(ports: Ports, deadline: float) -> str:
    """RFC 3339, in whole seconds, of a time on the steady clock."""
    return add_seconds(ports.clock.now(), deadline - ports.clock.monotonic()).partition(".")[0] + "Z"


def progress_of(ports: Ports, update: Update) -> Progress:
    """Reports each change of the words once."""
    reported = Once[str]()

    def report(words: str, deadline: float) -> None:
        if reported.is_new(words):
            update.narrate(ports, PhaseEntered, f"{words} until {time_of(ports, deadline)}")

    return report
