"""One line of history for each update that ended."""

from __future__ import annotations

from datetime import datetime

from nodeagent.core.change import Plan
from nodeagent.core.plan import disruption
from nodeagent.core.ports import HistoryEntry
from nodeagent.core.record import Record

__all__ = ["entry_of", "seconds_between"]


def seconds_between(started: str, finished: str) -> float:
    return round((datetime.fromisoformat(finished) - datetime.fromisoformat(started)).total_seconds(), 3)


def entry_of(record: Record, plan: Plan, now: str, outcome: str, reason: str = "", message: str = "") -> HistoryEntry:
    """``now`` is RFC 3339. A reboot was avoided when something was changed, verified, and the host stayed up."""
    avoided = outcome == "done" and record.reboots == 0 and bool(plan.changes) and not plan.reboot
    return HistoryEntry(
        update_id=record.update_id,
        from_name=record.from_name,
        to_name=record.to_name,
        started=record.started,
        finished=now,
        outcome=outcome,
        disruption=disruption(plan),
        reboots=record.reboots,
        reboot_avoided=avoided,
        seconds=seconds_between(record.started, now),
        reason=reason,
        message=message,
        fallback=bool(record.fallback),
    )
