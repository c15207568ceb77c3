# SPDX-License-Identifier: Apache-2.0
"""The plan as the ``nodeagent/plan/v1`` object of the command line, the bus and the store, and back.

Keys have a fixed order and absent values are omitted, so the same plan always gives the same bytes. Unknown keys are
ignored, because a newer agent may have stored the plan. Unknown actions are an error, so that none is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final

import msgspec
from msgspec import Struct

from nodeagent import typed
from nodeagent.core.plan.change import (
    Action,
    ActionType,
    Change,
    ChangeKind,
    Detail,
    KeyChange,
    Plan,
    PlannedChange,
    PolicySource,
)
from nodeagent.core.plan.plan import disruption

# The words of a plan for a reader.
COUNTED: Final = {ChangeKind.ADDED: "added", ChangeKind.MODIFIED: "changed", ChangeKind.REMOVED: "removed"}
PLAN_SCHEMA: Final = "nodeagent/plan/v1"


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    return {
        "schema": PLAN_SCHEMA,
        "from": plan.from_name,
        "to": plan.to_name,
        "changes": [
            {
                "domain": planned.change.domain,
                "key": planned.change.key,
                "change": str(planned.change.kind),
                "policy": str(planned.policy),
                "actions": [action_to_dict(action) for action in planned.actions],
                **({"why": planned.why} if planned.why else {}),
                **({"avoids_reboot": True} if planned.avoids_reboot else {}),
                **({"keys": [_key_to_dict(key) for key in planned.keys]} if planned.keys else {}),
                **({"details": [detail_to_dict(detail) for detail in planned.details]} if planned.details else {}),
            }
            for planned in plan.changes
        ],
        "actions": [{**action_to_dict(action), "because": list(action.because)} for action in plan.actions],
        # For readers. The agent itself computes both from the actions again.
        "drain": plan.drain,
        "disruption": disruption(plan),
        "counts": {**{COUNTED[kind]: plan.count(kind) for kind in ChangeKind}, "total": plan.total},
    }


def action_to_dict(action: Action) -> dict[str, Any]:
    """Return the object of an action without ``because``."""
    return _set_fields(replace(action, because=()))


def detail_to_dict(detail: Detail) -> dict[str, Any]:
    return _set_fields(detail)


def _key_to_dict(key: KeyChange) -> dict[str, Any]:
    return {**_set_fields(key), "actions": [action_to_dict(action) for action in key.actions]}


def _set_fields(part: Action | KeyChange | Detail) -> dict[str, Any]:
    """Return the fields that have another value than their default."""
    set_fields: dict[str, Any] = {}
    for field in fields(part):
        value = getattr(part, field.name)
        if value != field.default:
            set_fields[field.name] = list(value) if isinstance(value, tuple) else msgspec.to_builtins(value)
    return set_fields


class _Planned(Struct):
    """An entry of ``changes``. A list without items is left out when a plan is written."""

    domain: str
    key: str
    change: ChangeKind
    policy: PolicySource
    actions: tuple[Action, ...]
    why: str = ""
    avoids_reboot: bool = False
    keys: tuple[KeyChange, ...] = ()
    details: tuple[Detail, ...] = ()


class _Counts(Struct):
    total: int = 0


class _Stored(Struct):
    changes: tuple[_Planned, ...]
    actions: tuple[Action, ...]
    from_name: str = msgspec.field(name="from")
    to_name: str = msgspec.field(name="to")
    counts: _Counts = msgspec.field(default_factory=_Counts)


def plan_from_dict(data: Mapping[str, Any]) -> Plan:
    """Return the plan of an object. Raises ``ValueError`` if it is no plan of this schema."""
    if data.get("schema") != PLAN_SCHEMA:
        raise ValueError(f"schema {data.get('schema')!r}, expected {PLAN_SCHEMA}")
    try:
        stored = typed.convert(data, _Stored)
    except ValueError as error:
        raise ValueError(str(error)) from None
    changes = []
    for planned in stored.changes:
        change = Change(planned.domain, planned.key, planned.change)
        changes.append(
            PlannedChange(
                change,
                planned.policy,
                planned.actions,
                planned.why,
                planned.avoids_reboot,
                keys=planned.keys,
                details=planned.details,
            )
        )
        _check(*planned.actions, *(action for key in planned.keys for action in key.actions))
    _check(*stored.actions)
    return Plan(stored.from_name, stored.to_name, tuple(changes), stored.actions, stored.counts.total)


WITH_PATHS: Final = (ActionType.CLEAR_STATE, ActionType.RESTART_STATIC_POD)
WITH_UNIT: Final = (*WITH_PATHS, ActionType.STOP, ActionType.START, ActionType.RELOAD, ActionType.RESTART)


def _check(*actions: Action) -> None:
    # Checked although an agent wrote them: the steps of a resumed update are computed from them, and run as root.
    for action in actions:
        if bool(action.unit) != (action.type in WITH_UNIT):
            raise ValueError(f"{action.type} with unit {action.unit!r}")
        if bool(action.paths) != (action.type in WITH_PATHS):
            raise ValueError(f"{action.type} with {len(action.paths)} paths")
