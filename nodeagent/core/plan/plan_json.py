"""The plan as the ``nodeagent/plan/v1`` object of the command line, the bus and the store, and back.

Keys have a fixed order and absent values are omitted, so the same plan always gives the same bytes. Unknown keys are
ignored, because a newer agent may have stored the plan. Unknown actions are an error, so that none is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

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
                **({"details": [_detail_to_dict(each) for each in planned.details]} if planned.details else {}),
            }
            for planned in plan.changes
        ],
        "actions": [{**action_to_dict(action), "because": list(action.because)} for action in plan.actions],
        # For readers. The agent itself computes both from the actions again.
        "drain": plan.drain,
        "disruption": disruption(plan),
    }


def action_to_dict(action: Action) -> dict[str, Any]:
    out: dict[str, Any] = {"type": str(action.type)}
    if action.unit:
        out["unit"] = action.unit
    if action.paths:
        out["paths"] = list(action.paths)
    return out


def _key_to_dict(key: KeyChange) -> dict[str, Any]:
    return {
        "document": key.document,
        "key": key.key,
        "before": key.before,
        "after": key.after,
        "actions": [action_to_dict(action) for action in key.actions],
        **({"why": key.why} if key.why else {}),
        **({"next_start": key.next_start} if key.next_start else {}),
    }


def _detail_to_dict(detail: Detail) -> dict[str, Any]:
    # A count of 0 lines stays: it was counted.
    return {key: value for key, value in asdict(detail).items() if value not in ("", None)}


def plan_from_dict(data: Mapping[str, Any]) -> Plan:
    """Return the plan of an object. Raises ``ValueError`` if it is no plan of this schema."""
    if data.get("schema") != PLAN_SCHEMA:
        raise ValueError(f"schema {data.get('schema')!r}, expected {PLAN_SCHEMA}")
    return Plan(
        from_name=_text(data, "from"),
        to_name=_text(data, "to"),
        changes=tuple(_planned(item) for item in _objects(data, "changes")),
        actions=tuple(_action(item) for item in _objects(data, "actions")),
    )


def _planned(data: Mapping[str, Any]) -> PlannedChange:
    change = Change(_text(data, "domain"), _text(data, "key"), ChangeKind(_text(data, "change")))
    actions = tuple(_action(item) for item in _objects(data, "actions"))
    avoids = data.get("avoids_reboot") is True
    # A list without items is left out when a plan is written.
    keys = tuple(_key(item) for item in _objects(data, "keys")) if "keys" in data else ()
    details = tuple(_detail(item) for item in _objects(data, "details")) if "details" in data else ()
    source = PolicySource(_text(data, "policy"))
    return PlannedChange(change, source, actions, str(data.get("why", "")), avoids, keys, details)


def _detail(data: Mapping[str, Any]) -> Detail:
    added, removed = data.get("added"), data.get("removed")
    return Detail(
        _text(data, "what"),
        str(data.get("before", "")),
        str(data.get("after", "")),
        added if isinstance(added, int) else None,
        removed if isinstance(removed, int) else None,
    )


def _key(data: Mapping[str, Any]) -> KeyChange:
    return KeyChange(
        _text(data, "document"),
        _text(data, "key"),
        _text(data, "before"),
        _text(data, "after"),
        tuple(_action(item) for item in _objects(data, "actions")),
        str(data.get("why", "")),
        str(data.get("next_start", "")),
    )


WITH_PATHS: Final = (ActionType.CLEAR_STATE, ActionType.RESTART_STATIC_POD)
WITH_UNIT: Final = (*WITH_PATHS, ActionType.STOP, ActionType.RELOAD, ActionType.RESTART)


def _action(data: Mapping[str, Any]) -> Action:
    # The text is checked although an agent wrote it: the steps of a resumed update are computed from it, and run as
    # root.
    verb = ActionType(_text(data, "type"))
    unit = data.get("unit", "")
    because, paths = data.get("because", []), data.get("paths", [])
    if not isinstance(unit, str) or bool(unit) != (verb in WITH_UNIT):
        raise ValueError(f"{verb} with unit {unit!r}")
    if not isinstance(because, list) or not all(isinstance(item, str) for item in because):
        raise ValueError("because is not a list of changes")
    if not isinstance(paths, list) or not all(isinstance(item, str) for item in paths):
        raise ValueError("paths is not a list of paths")
    if bool(paths) != (verb in WITH_PATHS):
        raise ValueError(f"{verb} with {len(paths)} paths")
    return Action(verb, unit, tuple(because), tuple(paths))


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{key} is not text")  # noqa: TRY004 - one kind of error for one kind of finding
    return value


def _objects(data: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = data.get(key)
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise ValueError(f"{key} is not a list of objects")
    return value
