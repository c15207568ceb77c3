# SPDX-License-Identifier: Apache-2.0
"""Which events the hooks of the admin get, what of each, and what in their directory would never run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import msgspec

from nodeagent import typed
from nodeagent.core.config.file_tree import RegularFile, SymbolicLink
from nodeagent.core.config.unit_names import did_you_mean
from nodeagent.update.history.outcome import IN_HISTORY
from nodeagent.update.ports.events import Event, HostDegraded, UpdateFinished, UpdateStarted, UpdateWaiting
from nodeagent.update.ports.store import HistoryEntry

HOOKS: Final = "/etc/nodeagent/hooks"
SCHEMA: Final = "nodeagent/hook/v1"

# Characters of a message, and of the actions, so that a notice fits into a pipe.
MAX_MESSAGE: Final = 4096

# How often the hooks of one end run, if nodeagent ends while they do: a hook may be what ends it.
MAX_TRIES: Final = 2


class HookEvent(StrEnum):
    """An event that a hook gets. The values are the names of its directory."""

    # For a window, a slot, another actor, a check: before an update begins, or within it.
    WAITING = "waiting"
    # Right before the first write.
    BEGUN = "begun"
    # With any outcome of the history.
    FINISHED = "finished"
    # The revert failed as well; the end of the update follows.
    DEGRADED = "degraded"


@dataclass(frozen=True, slots=True)
class Notice:
    """What happened to an update. ``about`` has the keys that only this event has.

    ``from_name`` is "" for the first config. ``reason`` and ``message`` are "" where the event has none. ``end`` is the
    key of the entry of the history that it is about, "" without one.
    """

    event: HookEvent
    update_id: str
    from_name: str
    to_name: str
    reason: str = ""
    message: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)
    end: str = ""

    def repeats(self, before: Notice | None) -> bool:
        """Return whether an update waits for the same as in the notice before. The message may count pods."""
        return (
            before is not None
            and self.event is HookEvent.WAITING
            and (self.event, self.update_id, self.to_name, self.reason)
            == (before.event, before.update_id, before.to_name, before.reason)
        )

    def text(self, host: str, time: str) -> bytes:
        """Return the JSON for standard input: one line. ``time`` is that of the event."""
        document = {
            "schema": SCHEMA,
            "event": self.event,
            "time": time,
            "host": host,
            "update_id": self.update_id,
            "from": self.from_name,
            "to": self.to_name,
            "reason": self.reason,
            "message": self.message[:MAX_MESSAGE],
            **self.about,
        }
        return json.dumps(document).encode() + b"\n"


def notice_of(event: Event) -> Notice | None:
    """Return what the hooks get of an event, None for nothing."""
    match event:
        case UpdateWaiting() if not event.routine:
            kind = HookEvent.WAITING
        case UpdateStarted():
            about = event.about
            added = {"actions": event.actions[:MAX_MESSAGE]}
            return Notice(HookEvent.BEGUN, about.update_id, about.current, about.desired, about=added)
        case HostDegraded():
            kind = HookEvent.DEGRADED
        case UpdateFinished() if event.entry.outcome in IN_HISTORY:
            return end_notice(event.entry)
        case _:
            return None
    about = event.about
    return Notice(kind, about.update_id, about.current, about.desired, event.reason, event.message)


def end_notice(entry: HistoryEntry) -> Notice:
    """Return what the hooks get of the end of an update."""
    ended = {
        "outcome": entry.outcome,
        "disruption": entry.disruption,
        "reboots": entry.reboots,
        "seconds": round(entry.seconds, 1),
    }
    names = (entry.update_id, entry.from_name, entry.to_name)
    return Notice(HookEvent.FINISHED, *names, entry.reason, entry.message, ended, end_key(entry))


def end_key(entry: HistoryEntry) -> str:
    return f"{entry.update_id} {entry.finished}"


@dataclass(frozen=True, slots=True)
class DeliveredEnds:
    """The keys of the last end whose hooks have run, and of the one whose hooks were started ``tries`` times since."""

    last: str
    tried: str = ""
    tries: int = 0

    def trying(self, end: str) -> DeliveredEnds:
        return DeliveredEnds(self.last, end, self.tries + 1 if end == self.tried else 1)


def delivered_text(delivered: DeliveredEnds) -> str:
    return msgspec.json.encode(delivered, order="sorted").decode()


def delivered_of(text: str) -> DeliveredEnds | None:
    """Return what ``delivered_text`` wrote, None for another text."""
    try:
        return typed.from_json(text, DeliveredEnds)
    except ValueError:
        return None


def missed(history: Sequence[HistoryEntry], delivered: DeliveredEnds) -> Sequence[HistoryEntry]:
    """Return the ends whose hooks have not run, oldest first. ``history`` is its end, newest first."""
    ends: list[HistoryEntry] = []
    for entry in history:
        key = end_key(entry)
        if key == delivered.last or (key == delivered.tried and delivered.tries >= MAX_TRIES):
            break
        ends.append(entry)
    return ends[::-1]


def problems(path: str, node: RegularFile | SymbolicLink) -> Iterator[str]:
    """Yield why nodeagent would refuse to run a hook of a config."""
    if path.rpartition("/")[0] not in [f"{event}.d" for event in HookEvent]:
        yield f"is in none of the directories {HOOKS}/EVENT.d; EVENT: {', '.join(HookEvent)}"
    elif isinstance(node, RegularFile) and (not node.mode & 0o100 or node.mode & 0o022):
        yield "must be executable, and writable for root only (mode: 493, which is 0755)"


def unread(name: str) -> str:
    """Return why nothing reads this entry of the directory, "" if the hooks in it run."""
    events = [f"{event}.d" for event in HookEvent]
    if name in events:
        return ""
    return f"is no event of the hooks, so nothing in it runs{did_you_mean(name, events)}"
