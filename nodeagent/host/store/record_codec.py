"""The record as the store keeps it: one flat JSON object with the field names of 0.1.0.

The format stays that of 0.1.0 in both directions. An update of the OS may bring a newer nodeagent, and when that update
is reverted, the older nodeagent goes on with the record that the newer one wrote. So a leg is written as the flags that
0.1.0 has for it, and flags that contradict each other are read as the leg in which 0.1.0 would have gone on.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from nodeagent.core.boot import RebootKind
from nodeagent.core.coordination.windows import Hold
from nodeagent.update.history.trail import trail_from_dict, trail_to_dict
from nodeagent.update.lasting import Budget, Confirmation, Partial, Rejection
from nodeagent.update.legs import Abort, Apply, Fallback, Leg, Prepare, Rest, Revert, Unreleased, Written
from nodeagent.update.phase import Phase
from nodeagent.update.record import FailedUnit, Lasting, OsProgress, Record, UnitsBefore
from nodeagent.update.steps.unit_states import UP

RECORD_VERSION = 1


class NewerRecord(ValueError):
    """A version or a phase that this version does not know."""


# No dataclass: compiling the methods of one with so many fields takes 0.4 MiB that the process keeps.
class _Stored(msgspec.Struct, frozen=True):
    """The fields as they are named in the store. All have a default: an older version does not write the newer ones."""

    phase: str = Phase.IDLE.value
    since: str = ""
    reason: str = ""
    message: str = ""
    update_id: str = ""
    started: str = ""
    from_digest: str = ""
    to_digest: str = ""
    to_meaning: str = ""
    from_name: str = ""
    to_name: str = ""
    plan: dict[str, Any] | None = None
    writes: tuple[tuple[str, str], ...] = ()
    fresh: tuple[str, ...] = ()
    acted: bool = False
    done: frozenset[str] = frozenset()
    skipped: frozenset[str] = frozenset()
    restarting: str = ""
    invocation: str = ""
    runs: dict[str, str] = msgspec.field(default_factory=dict)
    well: frozenset[str] = frozenset()
    # 0.1.0 keeps the states before a planned reboot apart.
    ran: frozenset[str] = frozenset()
    unwell: frozenset[str] = frozenset()
    due: frozenset[str] = frozenset()
    before: dict[str, str] = msgspec.field(default_factory=dict)
    along: dict[str, str] = msgspec.field(default_factory=dict)
    node_ready: bool = False
    arguments: tuple[str, ...] = ()
    repairs: bool = False
    notes: tuple[str, ...] = ()
    drifted: tuple[str, ...] = ()
    failed_unit: FailedUnit | None = None
    boot_id: str = ""
    reboots: int = 0
    requested_reboots: int = 0
    fallback: str = ""
    # A newer field: the fallback of older agents was a full reboot.
    fallback_kind: str = RebootKind.FULL.value
    soft_failed: str = ""
    soft_reboots: int = 0
    reverting: bool = False
    revert_reason: str = ""
    tries: int = 0
    reboot_called: bool = False
    os_target: dict[str, Any] | None = None
    os_from: str = ""
    staged: str = ""
    staged_boot: str = ""
    misses: int = 0
    again: int = 0
    left_boot: str = ""
    etcd_disk: dict[str, Any] = msgspec.field(default_factory=dict)
    wrote_boot: str = ""
    merged: bool = False
    restored: bool = False
    rolled_back: bool = False
    given_up: str = ""
    given_up_why: str = ""
    unreleased: bool = False
    successor: str = ""
    unfinished: str = ""
    held: str = ""
    cordon: str = ""
    drain_until: float = 0.0
    # A trail of another form must not make the record unreadable.
    trail: Any = None
    rejected: str = ""
    rejected_why: str = ""
    # None in a record of 0.1.0, which has no list.
    rejections: tuple[Rejection, ...] | None = None
    avoided: str = ""
    avoided_meaning: str = ""
    hold: Hold | None = None
    confirmed: Confirmation | None = None
    budget: Budget = msgspec.field(default_factory=Budget)
    safe_for: str = ""
    next_partial: Partial | None = None
    partial: Partial | None = None
    os_kept: dict[str, Any] | None = None
    os_summary: str = ""
    bootloader_tries: int = 0


# The parts of a record with the fields whose names in the store are others, those of 0.1.0.
_RENAMED: Mapping[type, Mapping[str, str]] = {
    Record: {"newly_managed": "fresh", "reboot_requests": "tries", "partial": "next_partial"},
    Written: {"first_write_boot_id": "wrote_boot", "boots": "reboots"},
    UnitsBefore: {"healthy": "well", "states": "before"},
    OsProgress: {
        "target": "os_target",
        "origin": "os_from",
        "staged_boot_id": "staged_boot",
        "lost_stagings": "misses",
        "restage_count": "again",
        "clean_shutdown_boot_id": "left_boot",
        "kept": "os_kept",
        "summary": "os_summary",
    },
    Lasting: {
        "failed_digest": "rejected",
        "failed_why": "rejected_why",
        "rolled_back_digest": "avoided",
        "rolled_back_meaning": "avoided_meaning",
    },
}

# The fields of a record that are parts with fields of their own, or have another type in the store.
_PARTS = frozenset({"phase", "leg", "units_before", "os", "trail", "lasting"})


def _names(part: type) -> dict[str, str]:
    """Return the names in the store of the fields of a part of the record, by their own names."""
    renamed = _RENAMED[part]
    own = (name for name in part.__dataclass_fields__ if name not in _PARTS)  # type: ignore[attr-defined]  # dataclass
    return {name: renamed.get(name, name) for name in own}


def _read(stored: _Stored, part: type) -> dict[str, Any]:
    """Return the arguments for a part of the record."""
    return {name: getattr(stored, there) for name, there in _names(part).items()}


def record_to_dict(record: Record) -> dict[str, Any]:
    """Return the record in the form that the store keeps."""
    values = {
        there: getattr(part, name)
        for kind, part in (
            (Record, record),
            (Written, record.written),
            (UnitsBefore, record.units_before),
            (OsProgress, record.os),
            (Lasting, record.lasting),
        )
        for name, there in _names(kind).items()
    }
    states = record.units_before.states
    stored = _Stored(
        **values,
        ran=frozenset(unit for unit, state in states.items() if state in UP),
        unwell=frozenset(unit for unit, state in states.items() if state == "failed"),
        phase=record.phase.value,
        trail=trail_to_dict(record.trail),
        unreleased=isinstance(record.leg, Unreleased),
        **_flags(record.last_leg, record.phase),
    )
    # Any mapping is written as an object.
    out: dict[str, Any] = msgspec.to_builtins(stored, enc_hook=dict)
    for name in ("done", "skipped", "well", "ran", "unwell", "due"):
        # Equal records must have equal texts, because the store compares checksums of them.
        out[name] = sorted(out[name])
    return {"version": RECORD_VERSION, **out}


def _flags(leg: Leg, phase: Phase) -> dict[str, Any]:
    match leg:
        # An abort is recognized by its reason when it is read, so each one has a reason.
        case Abort():
            return {"given_up": leg.reason, "given_up_why": leg.message, "successor": leg.successor}
        case Apply():
            acted = phase is not Phase.WRITING or leg.etc_merge_repaired
            return {"acted": acted, "fallback": leg.reboot_instead, "merged": leg.etc_merge_repaired, **_kind(leg)}
        case Fallback():
            return {"acted": True, "fallback": leg.because, **_kind(leg)}
        case Revert():
            return {
                "acted": leg.undo_actions,
                "fallback": leg.fallback,
                "reverting": True,
                "revert_reason": leg.reason,
                "restored": leg.restored,
                "rolled_back": leg.rolled_back,
            }
        case _:
            return {}


def _kind(leg: Apply | Fallback) -> dict[str, str]:
    # The key is older than the soft reboots that are planned.
    return {"fallback_kind": leg.kind.value, "soft_failed": leg.soft_failed}


def record_from_dict(data: Mapping[str, Any]) -> Record:
    """Return the record in ``data``. Raise ``ValueError`` for anything that is not a record.

    Unknown keys come from a newer agent of the same store version and are dropped: the fields that decide are here.
    """
    # The version is judged before the fields, or a newer format would be reported as damage and salvaged.
    version = data.get("version")
    # The type is compared exactly, because True is an integer as well.
    if type(version) is int and version > RECORD_VERSION:
        raise NewerRecord(f"it has version {version}, this nodeagent knows {RECORD_VERSION}")
    if version != RECORD_VERSION:
        raise ValueError(f"record version {version!r}, expected {RECORD_VERSION}")
    # Older agents do not know which of the boots were requested.
    stored = msgspec.convert({"requested_reboots": data.get("reboots", 0), **data}, _Stored)
    if stored.phase not in set(Phase):
        raise NewerRecord(f"it is in the phase {stored.phase!r}, which this nodeagent does not know")
    phase = Phase(stored.phase)
    return Record(
        **_read(stored, Record),
        phase=phase,
        leg=_leg(stored, phase),
        units_before=_units_before(stored),
        os=OsProgress(**_read(stored, OsProgress)),
        trail=trail_from_dict(stored.trail),
        lasting=_lasting(stored),
    )


def _units_before(stored: _Stored) -> UnitsBefore:
    apart = {**dict.fromkeys(sorted(stored.ran), "active"), **dict.fromkeys(sorted(stored.unwell), "failed")}
    return UnitsBefore(**{**_read(stored, UnitsBefore), "states": {**apart, **stored.before}})


def _lasting(stored: _Stored) -> Lasting:
    rejections = stored.rejections or ()
    if stored.rejected and stored.rejections is None:
        # 0.1.0 keeps one, and nothing but the digest of its text.
        rejections = (Rejection(stored.rejected, why=stored.rejected_why),)
    return Lasting(**{**_read(stored, Lasting), "rejections": rejections})


def _leg(stored: _Stored, phase: Phase) -> Leg:
    """Return the leg of a phase, or where there are several, the one that the flags name."""
    match phase:
        case Phase.DEGRADED | Phase.RELEASING if stored.unreleased:
            ended = _ended(stored)
            return Unreleased(ended)
        case Phase.IDLE | Phase.DEGRADED:
            return Rest()
        case Phase.RELEASING:
            return _ended(stored)
        case Phase.REVERTING:
            return _revert(stored)
        case Phase.WRITING | Phase.ACTING:
            return _apply(stored)
        # Before the first write these phases prepare. After it the same words belong to a staging that is repeated,
        # and to the drain before a fallback.
        case Phase.STAGING if stored.acted:
            return _apply(stored)
        case Phase.DRAINING if stored.acted:
            return _fallback(stored)
        case Phase.STAGING | Phase.LEASING | Phase.DRAINING:
            return Prepare()
        case Phase.VERIFYING | Phase.REBOOTING:
            return _after_first_write(stored)


def _ended(stored: _Stored) -> Abort | Apply | Fallback | Revert:
    if stored.given_up:
        return Abort(stored.given_up, stored.given_up_why, stored.successor)
    return _after_first_write(stored)


def _after_first_write(stored: _Stored) -> Apply | Fallback | Revert:
    if stored.reverting:
        return _revert(stored)
    # Another OS takes a planned reboot, and then there is no fallback.
    return _fallback(stored) if stored.fallback and stored.os_target is None else _apply(stored)


def _apply(stored: _Stored) -> Apply:
    return Apply(
        **_read(stored, Written),
        reboot_instead=stored.fallback,
        etc_merge_repaired=stored.merged,
        kind=_reboot_kind(stored),
        soft_failed=stored.soft_failed,
    )


def _fallback(stored: _Stored) -> Fallback:
    kind = _reboot_kind(stored)
    return Fallback(**_read(stored, Written), because=stored.fallback, kind=kind, soft_failed=stored.soft_failed)


def _reboot_kind(stored: _Stored) -> RebootKind:
    # A kind of a newer agent is not repeated by this one.
    return RebootKind.SOFT if stored.fallback_kind == RebootKind.SOFT else RebootKind.FULL


def _revert(stored: _Stored) -> Revert:
    return Revert(
        **_read(stored, Written),
        reason=stored.revert_reason,
        undo_actions=stored.acted,
        restored=stored.restored,
        rolled_back=stored.rolled_back,
        fallback=stored.fallback,
    )


# The fields that say what the host holds (lease, cordon, deployment) and what it must not try again. All that is
# about the progress is left out, because it would be acted upon.
_SALVAGED = (
    *("update_id", "from_digest", "to_digest", "from_name", "to_name", "held", "cordon", "staged"),
    *("staged_boot", "rejected", "rejected_why", "avoided", "avoided_meaning", "unfinished"),
    *("os_target", "rejections", "budget", "partial", "hold"),
)


def salvaged(data: Mapping[str, Any], update_id: str) -> Record:
    """Return what takes the place of a record that is not understood: an update that ended half-way, with the fields of
    ``data`` that name what it holds. ``update_id`` is used if not even that is readable."""
    known: dict[str, Any] = {"version": RECORD_VERSION, "phase": Phase.DEGRADED.value, "update_id": update_id}
    for name in _SALVAGED:
        if name in data:
            with suppress(ValueError):
                # Each field is tried alone, so that one that cannot be read does not cost the others.
                record_from_dict(known | {name: data[name]})
                known[name] = data[name]
    known["update_id"] = known["update_id"] or update_id
    return record_from_dict(known)
