# SPDX-License-Identifier: Apache-2.0
"""The record as the store keeps it: its dataclasses as one JSON object, the leg with the name of its class as ``type``.

Unknown keys come from a newer agent of the same version and are dropped. A field that decides something therefore
needs a new version: an agent that does not know it must refuse the record.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, get_type_hints

import msgspec

from nodeagent import typed
from nodeagent.update.history.lasting import Lasting
from nodeagent.update.history.trail import trail_from_dict, trail_to_dict
from nodeagent.update.record import OsProgress, Record, degraded_record
from nodeagent.update.states import Abort, Apply, Fallback, Leg, Phase, Prepare, Rest, Revert, Unreleased

RECORD_VERSION: Final = 1

# Evaluated once: each read of the record would otherwise spend most of its time on the annotations.
_TYPES: Final[Mapping[type, Mapping[str, Any]]] = {kind: get_type_hints(kind) for kind in (Record, OsProgress, Lasting)}

_LEGS: Final[Mapping[str, type[Leg]]] = {
    kind.__name__: kind for kind in (Rest, Prepare, Abort, Apply, Fallback, Revert)
}

# The fields that hold what the host has (lease, cordon, deployment) and what it must not try again. All that is about
# the progress is left out, because it would be acted upon.
_SALVAGED: Final = (
    *("update_id", "from_digest", "to_digest", "from_name", "to_name"),
    *("held", "cordon", "unfinished"),
)
_SALVAGED_OS: Final = ("target", "staged", "staged_boot_id")
_SALVAGED_LASTING: Final = ("rejections", "rolled_back_digest", "rolled_back_meaning", "budget", "partial", "hold")


class NewerRecord(ValueError):
    """A version, a phase or a leg that this version does not know."""


def record_to_dict(record: Record) -> dict[str, Any]:
    """Return the record in the form that the store keeps. Equal records have equal forms."""
    fields = {name: _plain(getattr(record, name)) for name in Record.__dataclass_fields__ if name != "leg"}
    leg = {"type": type(record.leg).__name__, **_plain(record.leg)}
    if isinstance(record.leg, Unreleased):
        leg["leg"]["type"] = type(record.leg.leg).__name__
    return {"version": RECORD_VERSION, **fields, "leg": leg, "trail": trail_to_dict(record.trail)}


def _plain(value: object) -> Any:
    # Any mapping is written as an object, and sets are sorted.
    return msgspec.to_builtins(value, enc_hook=dict, order="deterministic")


def record_from_dict(data: Mapping[str, Any]) -> Record:
    """Return the record in ``data``. Raise ``ValueError`` for anything that is not a record."""
    # The version is judged before the fields, or a newer format would be reported as damage and salvaged.
    version, phase = data.get("version"), data.get("phase")
    # The type is compared exactly, because True is an integer as well.
    if type(version) is int and version > RECORD_VERSION:
        raise NewerRecord(f"it has version {version}, this nodeagent knows {RECORD_VERSION}")
    if version != RECORD_VERSION:
        raise ValueError(f"record version {version!r}, expected {RECORD_VERSION}")
    if isinstance(phase, str) and phase not in list(Phase):
        raise NewerRecord(f"it is in the phase {phase!r}, which this nodeagent does not know")
    fields = {
        name: typed.convert(data[name], kind)
        for name, kind in _TYPES[Record].items()
        if name in data and name not in ("leg", "trail")
    }
    return Record(**fields, leg=_leg(data.get("leg")), trail=trail_from_dict(data.get("trail")))


def _leg(data: object) -> Leg:
    match data:
        case {"type": "Unreleased", "leg": ended}:
            leg = _leg(ended)
            if isinstance(leg, Abort | Apply | Fallback | Revert):
                return Unreleased(leg)
        case {"type": str(name)} if name in _LEGS:
            return typed.convert(data, _LEGS[name])
        case {"type": str(name)} if name != "Unreleased":
            raise NewerRecord(f"it is in the leg {name!r}, which this nodeagent does not know")
    raise ValueError("it has no leg")


def salvaged(data: Mapping[str, Any], update_id: str) -> Record:
    """Return the replacement of a record that is not understood: an update that ended half-way, with the fields of
    ``data`` that name what it holds. ``update_id`` is used if not even that is readable."""
    fields = _readable(Record, data, _SALVAGED)
    return replace(
        degraded_record(),
        **fields | {"update_id": fields.get("update_id") or update_id},
        os=OsProgress(**_readable(OsProgress, data.get("os"), _SALVAGED_OS)),
        lasting=Lasting(**_readable(Lasting, data.get("lasting"), _SALVAGED_LASTING)),
    )


def _readable(part: type, data: object, names: Collection[str]) -> dict[str, Any]:
    """Return the values of these fields, without those that cannot be read."""
    fields: dict[str, Any] = {}
    for name in names:
        with suppress(ValueError):
            if isinstance(data, Mapping) and name in data:
                fields[name] = typed.convert(data[name], get_type_hints(part)[name])
    return fields
