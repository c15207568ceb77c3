# SPDX-License-Identifier: Apache-2.0
"""What a pool knows about whose turn it is, written to its slots, so that one node reads all Nodes for all that wait.

A node checks its turn while it holds a slot, which is marked for that time. If it is not its turn, it releases the slot
with the verdict. For a minute every node of the same pool takes that verdict for its own; then one of them checks
again. Nodes that find a check under way wait for its end, but not for that of a node that has gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from nodeagent.core.coordination.gates import Gate
from nodeagent.core.coordination.kube_time import micro_time, parse_time
from nodeagent.core.coordination.lease import PREFIX
from nodeagent.errors import OutOfTurn
from nodeagent.features.slots.decide.pool import NOTES, SIZE, SLACK, VERDICT, Slot
from nodeagent.features.slots.reasons import SlotReason

Object = dict[str, Any]
# Annotation of a slot of which the holder has not checked its turn.
UNCHECKED: Final = "turn-unchecked"
# Seconds for which a verdict counts, and for which it is shown while a node checks again.
COUNTS: Final = 60.0
SHOWN: Final = 240.0
# Seconds for which a check under way keeps others from one of their own. The list of all Nodes takes some of them.
CHECK: Final = 45.0
# Characters. Names of nodes make a message long.
LONGEST: Final = 1000
# The name of a pool in a verdict about a node that is in none.
NO_POOL: Final = "-"
_REASONS: Final = {str(reason): reason for reason in (SlotReason.POOL_ORDER, SlotReason.POOL_HALTED)}


@dataclass(frozen=True, slots=True)
class TurnVerdict:
    """Why it is not the turn of ``pool``; None for nodes that are in no pool. ``at`` is by the server's clock."""

    at: float
    pool: str | None
    gate: Gate


def verdict_text(gate: Gate, pool: str | None, latest: float) -> str:
    """Return the verdict as an annotation. ``latest`` is an upper bound of the server's time."""
    return f"{micro_time(latest)} {pool or NO_POOL} {gate.reason} {gate.message[:LONGEST]}"


def read_verdict(text: str) -> TurnVerdict | None:
    """Return None for a text of another form."""
    time, _, rest = text.partition(" ")
    pool, _, rest = rest.partition(" ")
    word, _, message = rest.partition(" ")
    at, reason = parse_time(time), _REASONS.get(word)
    if at is None or reason is None or not pool or not message:
        return None
    return TurnVerdict(at, None if pool == NO_POOL else pool, Gate(reason, message[:LONGEST]))


def present_verdicts(slots: Sequence[Slot], earliest: float, latest: float) -> Sequence[TurnVerdict]:
    """Return the verdicts that count, newest first. ``earliest`` and ``latest`` are bounds of the server's time."""
    written = [read_verdict(slot.lease.notes.get(VERDICT, "")) for slot in slots]
    oldest = earliest - (SHOWN if _is_checked(slots, earliest) else COUNTS)
    # No agent writes a time ahead of the server's, and one of those would count for too long.
    verdicts = [verdict for verdict in written if verdict is not None and oldest < verdict.at <= latest + SLACK]
    return sorted(verdicts, key=lambda verdict: -verdict.at)


def refusal(verdicts: Sequence[TurnVerdict], pool: str | None) -> OutOfTurn | None:
    """Return the newest verdict about ``pool``."""
    for verdict in verdicts:
        if verdict.pool == pool:
            return OutOfTurn(verdict.gate.message, reason=verdict.gate.reason)
    return None


def _is_checked(slots: Sequence[Slot], earliest: float) -> bool:
    """Return whether a node checks its turn now."""
    for slot in slots:
        since = parse_time(slot.lease.acquired)
        if slot.held and UNCHECKED in slot.lease.notes and since is not None and abs(earliest - since) < CHECK:
            return True
    return False


def unchecked() -> Mapping[str, str]:
    return {f"{PREFIX}{UNCHECKED}": "true"}


def passed(slot: Slot, size: str = "") -> Object:
    """Return a merge patch for a slot of which the holder has its turn. ``size`` as in ``not_passed``."""
    # In a merge patch (RFC 7396), null removes a key.
    notes: dict[str, str | None] = {f"{PREFIX}{key}": None for key in (UNCHECKED, VERDICT)}
    if size:
        notes[f"{PREFIX}{SIZE}"] = size
    return {"metadata": {"resourceVersion": slot.lease.version, "annotations": notes}}


def not_passed(slot: Slot, verdict: str = "", size: str = "") -> Object:
    """Return a merge patch that releases a slot. Without a verdict, or the size of the pool, an earlier one stays."""
    notes: dict[str, str | None] = {f"{PREFIX}{key}": None for key in (*NOTES, UNCHECKED)}
    if verdict:
        notes[f"{PREFIX}{VERDICT}"] = verdict
    if size:
        notes[f"{PREFIX}{SIZE}"] = size
    # The owner is removed: the verdict is about the pool.
    meta = {"resourceVersion": slot.lease.version, "annotations": notes, "ownerReferences": None}
    return {"metadata": meta, "spec": {"holderIdentity": None}}
