"""The history entry of an ended update, and of a request that began no update."""

from __future__ import annotations

from datetime import datetime

from nodeagent.core.plan.change import Plan
from nodeagent.core.plan.plan import disruption
from nodeagent.core.update.ports.store import HistoryEntry
from nodeagent.core.update.record import Record

__all__ = ["entry_of", "entry_of_request", "seconds_between"]


def seconds_between(started: str, finished: str) -> float:
    return round((datetime.fromisoformat(finished) - datetime.fromisoformat(started)).total_seconds(), 3)


def entry_of(
    record: Record, plan: Plan, now: str, outcome: str, reason: str = "", message: str = "", *, successor: str = ""
) -> HistoryEntry:
    """Return the entry of an update. ``now`` is RFC 3339.

    A reboot was avoided if an entry of the user policy replaced a reboot, and the update was verified without one.
    """
    avoided = outcome == "done" and record.written.reboots == 0 and plan.avoids_reboot
    return HistoryEntry(
        update_id=record.update_id,
        from_name=record.from_name,
        to_name=record.to_name,
        started=record.started,
        finished=now,
        outcome=outcome,
        disruption=disruption(plan),
        reboots=record.written.reboots,
        reboot_avoided=avoided,
        seconds=seconds_between(record.started, now),
        reason=reason,
        message=message,
        fallback=bool(record.fallback),
        to_digest=record.to_digest,
        successor=record.aborted.successor if record.aborted else successor,
        etcd_disk=record.os.etcd_disk,
    )


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
        disruption="none",
        reboots=0,
        reboot_avoided=False,
        seconds=0.0,
        reason=reason,
        message=message,
        to_digest=digest,
        successor=successor,
    )
