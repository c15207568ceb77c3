# SPDX-License-Identifier: Apache-2.0
"""The history entry of an ended update, and of a request that began no update; and both as JSON data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, Final

from nodeagent.core.display import text
from nodeagent.core.plan.change import Action, Detail, Plan
from nodeagent.core.plan.plan import disruption
from nodeagent.errors import InvalidInput
from nodeagent.reasons import Reason
from nodeagent.update.history.trail import Trail, boots_during, elapsed, trail_to_dict
from nodeagent.update.ports.store import HistoryEntry
from nodeagent.update.record import Record

UPDATE_SCHEMA: Final = "nodeagent/update/v1"

# The outcome of an update that has not ended. It is in no entry of the history.
UPDATE_UNDER_WAY: Final = "under-way"

# Changes and actions of the plan that an entry keeps, and characters of each text.
MAX_PLANNED, MAX_TEXT = 100, 200
# Values of one change, and characters of what an OS changes.
MAX_DETAILS, MAX_OS = 5, 1000


def seconds_between(started: str, finished: str) -> float:
    return round((datetime.fromisoformat(finished) - datetime.fromisoformat(started)).total_seconds(), 3)


def entry_of(
    record: Record, plan: Plan, now: str, outcome: str, reason: str = "", message: str = "", *, successor: str = ""
) -> HistoryEntry:
    """Return the entry of an update. ``now`` is RFC 3339.

    A reboot was avoided if an entry of the user policy replaced a reboot, and the update was verified without one.
    """
    # After a fallback reboot nothing was avoided.
    avoided = outcome == "done" and record.written.boots == 0 and plan.avoids_reboot
    return HistoryEntry(
        update_id=record.update_id,
        from_name=record.from_name,
        to_name=record.to_name,
        started=record.started,
        finished=now,
        outcome=outcome,
        disruption=disruption(plan),
        reboots=record.written.requested_reboots,
        reboot_avoided=avoided,
        seconds=seconds_between(record.started, now),
        reason=reason,
        message=message,
        fallback=bool(record.fallback),
        soft_reboots=record.written.soft_reboots,
        # A trail that was not readable after a boot has begun again.
        boots=max(record.written.boots, boots_during(record.trail)),
        to_digest=record.to_digest,
        failed_unit=record.failed_unit.name if record.failed_unit is not None else "",
        successor=record.aborted.successor if record.aborted else successor,
        etcd_disk=record.os.etcd_disk,
        plan=plan_summary(plan, record.os.summary),
        trail=trail_to_dict(record.trail),
    )


def with_trail(entry: HistoryEntry, trail: Trail) -> HistoryEntry:
    """Return the entry with a trail, and the length of the update by it: a wall clock may be set during an update."""
    seconds = elapsed(trail)
    return replace(entry, trail=trail_to_dict(trail), seconds=entry.seconds if seconds is None else seconds)


def under_way(record: Record, plan: Plan, now: str) -> HistoryEntry:
    """Return an entry for an update that has not ended."""
    return with_trail(entry_of(record, plan, now, UPDATE_UNDER_WAY, record.reason, record.message), record.trail)


def plan_summary(plan: Plan, os: str = "") -> dict[str, Any]:
    """Return the plan for the history: the changed keys of a file are left out, and there is a bound.

    ``os`` is what the staged deployment changes, "" if that is not known.
    """
    changes = [
        {
            "domain": text(planned.change.domain, MAX_TEXT),
            "key": text(planned.change.key, MAX_TEXT),
            "change": str(planned.change.kind),
            "policy": str(planned.policy),
            "actions": [_action(action) for action in planned.actions[:MAX_PLANNED]],
            **({"details": [_detail(detail) for detail in planned.details[:MAX_DETAILS]]} if planned.details else {}),
        }
        for planned in plan.changes[:MAX_PLANNED]
    ]
    more = max(0, len(plan.changes) - MAX_PLANNED)
    actions = [_action(action) for action in plan.actions[:MAX_PLANNED]]
    summary = {"changes": changes, "more": more, "actions": actions, "drain": plan.drain}
    return {**summary, "os": text(os, MAX_OS)} if os else summary


def _detail(detail: Detail) -> dict[str, Any]:
    values = {key: text(value, MAX_TEXT) for key in ("what", "before", "after") if (value := getattr(detail, key))}
    lines = {key: value for key in ("added", "removed") if (value := getattr(detail, key)) is not None}
    return {**values, **lines}


def _action(action: Action) -> str:
    # Names come from configs, and a history is read in terminals.
    return f"{action.type} {text(action.unit, MAX_TEXT)}".strip()


def entry_of_request(
    name: str, digest: str, now: str, outcome: str, reason: str = "", message: str = "", *, successor: str = ""
) -> HistoryEntry:
    """Return the entry of a request without an update. It has no id and is not stored."""
    return HistoryEntry(
        update_id="",
        from_name="",
        to_name=name,
        started=now,
        finished=now,
        outcome=outcome,
        reason=reason,
        message=message,
        to_digest=digest,
        successor=successor,
    )


def entry_to_dict(entry: HistoryEntry) -> dict[str, Any]:
    """Return the object of ``nodeagent/history/v1``, without the details of one update."""
    fields = asdict(entry)
    del fields["plan"], fields["trail"]
    return fields


def update_to_dict(entry: HistoryEntry) -> dict[str, Any]:
    """Return the ``nodeagent/update/v1`` object."""
    return {"schema": UPDATE_SCHEMA, **asdict(entry)}


def find_update(entries: Sequence[HistoryEntry], update_id: str) -> HistoryEntry:
    """Return the entry whose id is ``update_id`` or begins with it, the newest one for "".

    Raises ``InvalidInput`` (``NoSuchUpdate``) if there is none, or more than one.
    """
    return entries[index_of([entry.update_id for entry in entries], update_id)]


def index_of(ids: Sequence[str], update_id: str) -> int:
    """Return the place of the update that ``find_update`` returns."""
    # As for a commit of git, the beginning of an id is enough where it is unique.
    matches = [index for index, update in enumerate(ids) if update.startswith(update_id)]
    exact = [index for index in matches if ids[index] == update_id] or (matches if update_id else matches[:1])
    if len(exact) == 1:
        return exact[0]
    what = "is ambiguous" if exact else "is not in the history" if update_id else "does not exist yet"
    # Without an id, two blanks would follow each other.
    raise InvalidInput(f"the update {update_id} {what}".replace("  ", " "), reason=Reason.NO_SUCH_UPDATE)
