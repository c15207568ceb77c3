"""How an update ended, for an operator and for an exit status."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from nodeagent.cli._io import printable
from nodeagent.cli._render import BAD, GOOD, WARN, counted, duration, local_now, local_times, paint
from nodeagent.core.update.outcome import UpdateOutcome, exit_code
from nodeagent.reasons import Reason, hint


@dataclass(frozen=True, slots=True)
class Ending:
    """``outcome`` is an ``UpdateOutcome``, or ``accepted`` if the command did not wait. ``code`` is the exit status
    that the daemon reported; None: it follows from the outcome."""

    outcome: str
    reason: str = ""
    message: str = ""
    seconds: float | None = None
    reboots: int = 0
    reboot_avoided: bool = False
    successor: str = ""
    failed_unit: str = ""
    code: int | None = None

    @property
    def exit_code(self) -> int:
        # The daemon knows the error that ended a refused request, and its exit status.
        if self.code is not None:
            return self.code
        return 0 if self.outcome == "accepted" else exit_code(self.outcome, self.reason)


def ending_of(entry: dict[str, Any], code: int | None = None) -> Ending:
    """``entry`` is one of ``history/v1``. Entries of older daemons lack the last keys."""
    return Ending(
        entry["outcome"],
        entry["reason"],
        entry["message"],
        # A request that never became an update has no duration.
        entry["seconds"] if entry["update_id"] else None,
        entry["reboots"],
        entry["reboot_avoided"],
        entry.get("successor", ""),
        entry.get("failed_unit", ""),
        code,
    )


def ending_without_signal(
    name: str, digest: str, status: dict[str, Any], history: Collection[dict[str, Any]], known: Collection[str]
) -> Ending | None:
    """Return the end of an update whose signal may have been missed; None while it goes on.

    ``digest`` is "" where only the name is known. ``known`` are the updates that were in the history before the
    request. A daemon that refuses the config reports that again after a restart.
    """
    # The entry of an update is written before its release, and the update has ended only after that.
    resting = status["phase"] in ("Idle", "Degraded")
    for entry in history:
        # Entries of older daemons have no digest, so the names are compared.
        mine = entry.get("to_digest") == digest if digest and entry.get("to_digest") else entry["to_name"] == name
        if mine and entry["update_id"] not in known and (resting or entry["update_id"] != status["update_id"]):
            return ending_of(entry)
    desired = status.get("desired_digest", "")
    current = status.get("current_digest", "")
    if status["phase"] == "Idle" and (digest == current if digest and current else status["current"] == name):
        return Ending(UpdateOutcome.UNCHANGED)
    if not digest or desired in ("", digest) or status.get("target") == name:
        return None
    if desired == current:
        why = f"the current config {status['desired']} is desired again"
        return Ending(UpdateOutcome.WITHDRAWN, Reason.WITHDRAWN, why)
    why = f"{status['desired']} is desired instead"
    return Ending(UpdateOutcome.SUPERSEDED, Reason.SUPERSEDED, why, successor=status["desired"])


def print_ending(name: str, result: Ending) -> None:
    name = printable(name)
    took = f" in {duration(result.seconds)}" if result.seconds is not None else ""
    why = local_times(printable(": ".join(part for part in (result.reason, result.message) if part)), local_now())
    match result.outcome:
        case "done":
            how = f", with {counted(result.reboots, 'reboot')}" if result.reboots else ""
            avoided = "; a reboot was avoided" if result.reboot_avoided else ""
            print(paint(f"done: {name} is the current config{took}{how}{avoided}", GOOD))
        case "done-after-fallback":
            print(paint(f"done: {name} is the current config{took}, but it needed a reboot: {why}", WARN))
        case "unchanged":
            print(paint(f"nothing to do: {name} is the current config", GOOD))
        case "superseded" | "withdrawn":
            print(paint(f"{result.outcome}: {name} is not in force: {printable(result.message)}", WARN))
        case outcome:
            print(paint(f"{outcome}: {name} is not in force{took}: {why}", BAD))
            if result.reason:
                print(f"what now: {hint(result.reason, printable(result.failed_unit))}")
