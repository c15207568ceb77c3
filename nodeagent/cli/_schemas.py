# SPDX-License-Identifier: Apache-2.0
"""The JSON Schemas of all answers of the command line, of the base and of the features.

For the package, the reference and the tests; no command imports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any, Final

import msgspec

from nodeagent import features, typed
from nodeagent.contract import answers
from nodeagent.contract.history import History, HistoryDiff, Update
from nodeagent.contract.keys import Keys, about
from nodeagent.contract.plan import Plan
from nodeagent.contract.status import Status

# Where the package has them, each as NAME-v1.json.
DIRECTORY: Final = "usr/share/nodeagent/schemas"
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_BASE: Final[Mapping[str, type[Keys]]] = {
    "status": Status,
    "plan": Plan,
    "apply": answers.Apply,
    "cancel": answers.Cancel,
    "reboot": answers.Reboot,
    "rollback": answers.Rollback,
    "history": History,
    "update": Update,
    "history-diff": HistoryDiff,
    "verify": answers.Verify,
    "explain": answers.Explain,
    "policy-suggest": answers.PolicySuggest,
    "policy-check": answers.PolicyCheck,
    "lease": answers.LeaseAnswer,
    "machineconfig": answers.MachineConfig,
    "config": answers.SettingsShown,
    "config-check": answers.SettingsChecked,
    "etcd-snapshot": answers.EtcdSnapshot,
    "version": answers.Version,
    "error": answers.Error,
}


def base_answers() -> Mapping[str, type[Keys]]:
    """Return the answers of the base by their schema, without the keys of features."""
    return {f"nodeagent/{name}/v1": kind for name, kind in _BASE.items()}


def feature_answers(name: str) -> Mapping[str, type[Keys]]:
    """Return the answers of the commands of a feature by their schema."""
    return _declared(name, "ANSWERS")


def feature_keys(name: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the keys that a feature adds to answers of the base: by the schema, their types by name."""
    # The package of a feature lists what the command line needs; the rest is in its declarations.
    status = _declared(name, "STATUS")
    delaying = {rows.key for rows in getattr(_package(name), "ROWS", ()) if rows.delays}
    takes = [taken for option in getattr(_package(name), "OPTIONS", ()) for taken in option.takes]
    added = {
        "nodeagent/status/v1": status,
        # Only a plan on a host has it, and only if it applies there.
        "nodeagent/plan/v1": {key: kind | msgspec.UnsetType for key, kind in _declared(name, "PLAN").items()},
        "nodeagent/apply/v1": {
            # What delays the update that is requested, and when it begins.
            **{key: kind for key, kind in status.items() if key in delaying},
            **{key: Annotated[str, about(f"as requested: {form}; empty for none")] for key, form in takes},
        },
    }
    return {schema: keys for schema, keys in added.items() if keys}


@cache
def kinds() -> Mapping[str, type[Keys]]:
    """Return the class of each answer by its schema, with the keys of all features."""
    complete: dict[str, type[Keys]] = {}
    for schema, base in base_answers().items():
        # In the order of NAMES, as in the answers.
        added = [field for name in features.NAMES for field in feature_keys(name).get(schema, {}).items()]
        complete[schema] = _extended(base, added) if added else base
    for name in features.NAMES:
        complete |= feature_answers(name)
    return complete


def documents() -> Mapping[str, dict[str, Any]]:
    """Return each JSON Schema by the name of its file."""
    return {f"{schema.split('/')[1]}-v1.json": document(schema, kind) for schema, kind in kinds().items()}


def document(schema: str, kind: type[Keys]) -> dict[str, Any]:
    """Return the JSON Schema of an answer. It allows further keys, because a later version adds some."""
    made: dict[str, Any] = _open(msgspec.json.schema(kind))
    return {"$schema": DIALECT, "title": schema, **made}


def check(answer: Mapping[str, Any]) -> str:
    """Return what is wrong with an answer by its schema, "" for nothing. A key that is not declared is wrong."""
    kind = kinds().get(str(answer.get("schema")))
    if kind is None:
        return f"there is no schema {answer.get('schema')!r}"
    # The classes forbid further keys, the schemas of the package do not.
    try:
        typed.convert(answer, kind)
    except ValueError as error:
        return f"{answer['schema']}: {error}"
    return ""


def _declared(name: str, what: str) -> Mapping[str, Any]:
    # Most features have no JSON of their own.
    module = f"{features.__name__}.{name}.schema"
    found: Mapping[str, Any] = getattr(import_module(module), what, {}) if find_spec(module) else {}
    return found


def _package(name: str) -> Any:
    return import_module(f"{features.__name__}.{name}")


def _extended(base: type[Keys], added: list[tuple[str, Any]]) -> type[Keys]:
    # A class of msgspec has one default for a key that is left out.
    fields = [
        (key, kind, msgspec.UNSET) if msgspec.UnsetType in getattr(kind, "__args__", ()) else (key, kind)
        for key, kind in added
    ]
    made: type[Any] = msgspec.defstruct(base.__name__, fields, bases=(base,), kw_only=True, forbid_unknown_fields=True)
    return made


def _open(value: Any) -> Any:
    """Return the schema without the limit to the declared keys, in a form that no version of Python or msgspec
    changes: with null last among several types, and a description in one line."""
    match value:
        case {"description": str(text), **rest}:
            return {**_open(rest), "description": " ".join(text.split())}
        case dict():
            return {key: _open(item) for key, item in value.items() if (key, item) != ("additionalProperties", False)}
        case list():
            return sorted((_open(item) for item in value), key=lambda item: item == {"type": "null"})
        case _:
            return value
