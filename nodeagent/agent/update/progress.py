"""What a wait inside a phase is for, and until when, as the message of the status."""

from __future__ import annotations

from collections.abc import Callable

from nodeagent.agent.update.run import Ports, Update, narrate
from nodeagent.core.coordination.maintenance import add_seconds
from nodeagent.core.update.events import EventKind

__all__ = ["Progress", "progress_of", "time_of"]

Progress = Callable[[str, float], None]
"""Called with words and a deadline on the steady clock, as often as one likes."""


def time_of(ports: Ports, deadline: float) -> str:
    """RFC 3339, in whole seconds, of a time on the steady clock."""
    return add_seconds(ports.clock.now(), deadline - ports.clock.monotonic()).partition(".")[0] + "Z"


def progress_of(ports: Ports, update: Update) -> Progress:
    """Reports each change of the words once."""
    last = ""

    def report(words: str, deadline: float) -> None:
        nonlocal last
        if words != last:
            last = words
            narrate(ports, update, EventKind.PHASE, f"{words} until {time_of(ports, deadline)}")

    return report
