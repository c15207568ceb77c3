"""The record: what the agent must still know after it was killed. One per host, kept in the store.

Markers go in before the effect and are cleared after success, so the record may claim less than was done, never
more. It holds no content: configs and previous content live in tables of their own beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from nodeagent.core.update.phase import NEXT, Phase
from nodeagent.core.update.reboot_budget import Budget, budget_from
from nodeagent.core.update.rejections import Rejection, added, matching, rejections_from, without
from nodeagent.errors import AgentError

__all__ = [
    "RECORD_VERSION",
    "UNKNOWN_UPDATE",
    "IllegalTransition",
    "NewerRecord",
    "Record",
    "advance",
    "at_rest",
    "half_way",
    "interrupted",
    "lasting",
    "record_from_dict",
    "record_to_dict",
    "reject",
    "salvaged",
    "same_update",
]

RECORD_VERSION = 1

UNKNOWN_UPDATE = "unknown"
"""The update of a record that says nothing that can be understood."""


class IllegalTransition(AgentError):
    default_reason = "IllegalTransition"


class NewerRecord(ValueError):
    """A version or a phase that this version does not know."""


@dataclass(frozen=True, slots=True)
class Record:
    """Times are RFC 3339 in UTC. Digests are keys of configs in the store; "" means that there is none."""

    phase: Phase = Phase.IDLE
    since: str = ""  # when this phase was entered
    reason: str = ""  # why we are degraded, or what we wait for; CamelCase
    message: str = ""

    update_id: str = ""
    started: str = ""
    from_digest: str = ""  # the config that was current at the start
    to_digest: str = ""
    to_meaning: str = ""  # of the config to_digest, see core.meaning
    from_name: str = ""
    to_name: str = ""
    plan: Mapping[str, Any] | None = None  # contract form, see core.plan_json
    writes: tuple[tuple[str, str], ...] = ()  # the write steps, as (type, argument): the disk they came from is gone
    fresh: tuple[str, ...] = ()  # snapshot keys that we manage from this update on
    acted: bool = False  # some action may have run, so going back needs the actions too
    done: frozenset[str] = frozenset()  # ids of the act steps that are done
    skipped: frozenset[str] = frozenset()  # ids of act steps that had nothing to act on
    restarting: str = ""  # id of the restart that was begun and is not done
    invocation: str = ""  # of that unit, before: another one means that it was restarted
    well: frozenset[str] = frozenset()  # units that passed their own health check before we touched them
    ran: frozenset[str] = frozenset()  # enabled units that ran before a planned reboot
    unwell: frozenset[str] = frozenset()  # units that had failed before we touched anything
    before: Mapping[str, str] = field(default_factory=dict)  # active states, before the first write, of units to act on
    repairs: bool = False  # the update before ended half-way: a unit that does not run may be its doing
    notes: tuple[str, ...] = ()  # what the history reports of this update besides its outcome

    boot_id: str = ""  # of the boot in which this phase was entered
    reboots: int = 0  # that we saw since the writing was done, planned or not
    fallback: str = ""  # why we rebooted although the plan had no reboot: the loop breaker counts it as one
    reverting: bool = False
    revert_reason: str = ""
    tries: int = 0  # of the present phase

    os_target: Mapping[str, Any] | None = None  # what the update asks of the OS, see core.deployment
    os_from: str = ""  # id of the deployment that was booted when we staged, or of the one that a revert made of it
    staged: str = ""  # id of a deployment that we staged; until the next update if that one was abandoned
    staged_boot: str = ""  # the boot in which that was
    misses: int = 0  # how often what we staged was gone, or did not boot, for no reason that we know
    again: int = 0  # how often we began to stage once more, with the files written
    left_boot: str = ""  # the boot that ended in order, as far as we saw it, after we had asked for the reboot
    wrote_boot: str = ""  # the boot in which the first byte was written: services of later ones may have read it
    merged: bool = False  # what the merge of /etc took back was written again, once
    restored: bool = False  # of a revert: files, units and users are as before
    rolled_back: bool = False  # of a revert: the old deployment was put first in the boot order

    given_up: str = ""  # why it ends although nothing was written, as a reason; what was taken is being given back
    given_up_why: str = ""
    unreleased: bool = False  # the end of the update is reported; what it took could not be given back yet
    successor: str = ""  # name of the config that took the place of this one before anything was written
    unfinished: str = ""  # digests, newest first, of configs that earlier updates left half-way, until a good end
    held: str = ""  # the operation that holds the lease and the slot of a node left half-way; a repair goes on with it
    cordon: str = ""  # who cordoned the node, if we did: this update, or one before that ended half-way
    drain_until: float = 0.0  # deadline of the drain, on the steady clock of the boot in boot_id

    rejected: str = ""  # digest of the config in ``rejections`` that failed last; all that 0.1.0 knows of them
    rejected_why: str = ""
    rejections: tuple[Rejection, ...] = ()  # configs that failed here and are applied again on request only
    avoided: str = ""  # digest of a config that an operator rolled back from; applied again on request only
    avoided_meaning: str = ""
    budget: Budget = field(default_factory=Budget)  # of fallback reboots

    @property
    def operation(self) -> str:
        """Under which lease, slots and cordon are taken."""
        return self.held or self.update_id

    @property
    def repairs_nothing(self) -> bool:
        """Whether this update is at its end, and the disk holds parts of two configs as it did before."""
        return bool(self.unfinished) and (bool(self.given_up) or self.reverting)


def advance(record: Record, to: Phase, *, now: str, boot_id: str, reason: str = "", message: str = "") -> Record:
    """The record in its next phase. An edge that is not in the table is a bug, and stops the update there."""
    if to not in NEXT[record.phase]:
        raise IllegalTransition(f"{record.phase} -> {to}")
    return replace(record, phase=to, since=now, boot_id=boot_id, reason=reason, message=message, tries=0)


def reject(record: Record, why: str, now: str) -> Record:
    """The record with the config of this update among those that failed."""
    rejection = Rejection(record.to_digest, record.to_meaning, record.to_name, why, now)
    rejections = added(record.rejections, rejection)
    return replace(record, rejected=record.to_digest, rejected_why=why, rejections=rejections)


def lasting(record: Record, digest: str = "", meaning: str = "") -> dict[str, Any]:
    """The fields that outlive every update: which configs are applied on request only, and how many fallback reboots
    there were. Without the config with this digest or meaning: it is applied now, so it has failed only when it fails
    again."""
    rejections = without(record.rejections, digest, meaning)
    newest = matching(rejections, record.rejected, "")
    return {
        "rejected": record.rejected if newest else "",
        "rejected_why": record.rejected_why if newest else "",
        "rejections": rejections,
        "avoided": record.avoided,
        "avoided_meaning": record.avoided_meaning,
        "budget": record.budget,
    }


def at_rest(record: Record) -> Record:
    """What outlives an update that touched nothing: what outlives each of them, and what may still be staged and is
    ours to discard."""
    return Record(
        **lasting(record),
        os_target=record.os_target,
        staged=record.staged,
        staged_boot=record.staged_boot,
        held=record.held,
        cordon=record.cordon,
        unfinished=record.unfinished,
    )


def same_update(rest: Record, of: Record) -> Record:
    """``rest`` with the identity of an update that was interrupted before anything was written, so that it either
    begins again under its id, or gets its end."""
    return replace(
        rest,
        update_id=of.update_id,
        started=of.started,
        from_digest=of.from_digest,
        to_digest=of.to_digest,
        from_name=of.from_name,
        to_name=of.to_name,
        plan=of.plan,
    )


def interrupted(record: Record) -> bool:
    return record.phase is Phase.IDLE and bool(record.update_id)


def half_way(record: Record) -> bool:
    """An update ended without a good end or a way back, so the disk may hold parts of two configs."""
    if record.unfinished and record.phase in (Phase.IDLE, Phase.DEGRADED):
        return True  # the next update was given up before it wrote anything, or was reverted to that state
    if record.unreleased:
        return False
    return record.phase is Phase.DEGRADED and bool(record.update_id) and record.reason != "Reverted"


_SALVAGED = (
    *("update_id", "from_digest", "to_digest", "from_name", "to_name", "held", "cordon", "staged"),
    *("staged_boot", "rejected", "rejected_why", "avoided", "avoided_meaning", "unfinished"),
)


def salvaged(data: Mapping[str, Any], update_id: str) -> Record:
    """What takes the place of a record that is not understood: an update that ended half-way, with what of ``data``
    says what it holds. ``update_id`` is for one that does not even say that."""
    texts = {name: data[name] for name in _SALVAGED if isinstance(data.get(name), str)}
    target = data.get("os_target")
    record = Record(phase=Phase.DEGRADED, os_target=target if isinstance(target, Mapping) else None, **texts)
    with suppress(KeyError, ValueError, TypeError):
        record = replace(record, rejections=rejections_from(data["rejections"]))
    with suppress(KeyError, ValueError, TypeError):
        record = replace(record, budget=budget_from(data["budget"]))
    return record if record.update_id else replace(record, update_id=update_id)


def record_to_dict(record: Record) -> dict[str, Any]:
    out: dict[str, Any] = {name: getattr(record, name) for name in Record.__dataclass_fields__}
    out["phase"] = str(record.phase)
    out["done"] = sorted(record.done)
    out["skipped"] = sorted(record.skipped)
    out["well"] = sorted(record.well)
    out["ran"] = sorted(record.ran)
    out["unwell"] = sorted(record.unwell)
    out["writes"] = [list(pair) for pair in record.writes]
    out["fresh"] = list(record.fresh)
    out["rejections"] = [asdict(one) for one in record.rejections]
    out["budget"] = asdict(record.budget)
    out["notes"] = list(record.notes)
    out["before"] = dict(record.before)
    return {"version": RECORD_VERSION, **out}


def record_from_dict(data: Mapping[str, Any]) -> Record:
    """Raises ``ValueError`` or ``TypeError`` on anything that is not a record; the store turns that into its own error.

    Unknown keys come from a newer agent of the same store version and are dropped: the fields that decide are here.
    """
    version = data.get("version")
    if type(version) is int and version > RECORD_VERSION:
        raise NewerRecord(f"it has version {version}, this nodeagent knows {RECORD_VERSION}")
    if version != RECORD_VERSION:
        raise ValueError(f"record version {version!r}, expected {RECORD_VERSION}")
    defaults = Record()
    values: dict[str, Any] = {}
    for name in Record.__dataclass_fields__:
        if name not in data:
            continue
        value = data[name]
        match name:
            case "phase":
                if isinstance(value, str) and value not in set(Phase):
                    raise NewerRecord(f"it is in the phase {value!r}, which this nodeagent does not know")
                value = Phase(value)
            case "done" | "skipped" | "well" | "ran" | "unwell":
                if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                    raise ValueError(f"{name} is not a list of strings")
                value = frozenset(value)
            case "writes":
                value = tuple((str(kind), str(argument)) for kind, argument in value)
            case "rejections":
                value = rejections_from(value)
            case "budget":
                value = budget_from(value)
            case "fresh" | "notes":
                value = tuple(str(item) for item in value)
            case "before":
                if not isinstance(value, Mapping) or not all(isinstance(item, str) for item in value.values()):
                    raise ValueError(f"{name} is not an object of strings")
                value = dict(value)
            case "plan" | "os_target":
                if value is not None and not isinstance(value, Mapping):
                    raise ValueError(f"{name} is not an object")
            case _:
                if type(value) is not type(getattr(defaults, name)):
                    raise ValueError(f"{name} has the wrong type")
        values[name] = value
    record = Record(**values)
    if record.rejected and "rejections" not in data:  # 0.1.0 keeps one, and nothing but the digest of its text
        record = replace(record, rejections=(Rejection(record.rejected, why=record.rejected_why),))
    return record
