# SPDX-License-Identifier: Apache-2.0
"""Convert plain data to the types of ``schema`` and report every value of a wrong type and every unknown key.

msgspec stops at the first error. This conversion leaves out the wrong values and continues, so that the readers find
the problems of all other values in the same pass. It accepts exactly what the typed JSON decoder accepts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from types import NoneType
from typing import Any, Final, TypeVar, get_args, get_origin

import msgspec

from nodeagent.core.config.problems import MAX_SHOWN, Location, kind_of, name_in, shown, similar

_Struct = TypeVar("_Struct", bound=msgspec.Struct)

_NAMES: Final[Mapping[type, str]] = {str: "a string", int: "an integer", bool: "true or false", list: "a list"}
# Keys that are often written in place of others, by the type of their object.
_ADVICE: Final[Mapping[tuple[str, str], str]] = {
    ("File", "filesystem"): "it is of Ignition 2, delete it",
    **dict.fromkeys(
        [("IgnitionDirectory", "filesystem"), ("IgnitionLink", "filesystem")], "it is of Ignition 2; delete it"
    ),
    ("Config", "networkd"): "it is of Ignition 2; delete it, and write its units as files below /etc/systemd/network",
    ("Unit", "enable"): "it is of Ignition 2, write enabled",
    ("Config", "kernelType"): "it belongs below spec",
    **dict.fromkeys([("Contents", "inline"), ("Contents", "local")], "it is of Butane, run butane on the file"),
    **dict.fromkeys([("Unit", "contents_local"), ("File", "parent")], "it is of Butane, run butane on the file"),
    **dict.fromkeys(
        [(owner, key) for owner in ("Document", "Spec") for key in ("ignition", "storage", "systemd", "passwd")],
        "it belongs below spec.config",
    ),
    **dict.fromkeys(
        [("Document", key) for key in ("config", "kernelArguments", "osImageURL", "extensions")],
        "it belongs below spec",
    ),
}
NO_BREAK: Final = "\u00a0"
_OCTAL = re.compile(r"(?:0o)?[0-7]{3,5}")


@cache
def fields_of(kind: type[msgspec.Struct]) -> Mapping[str, msgspec.structs.FieldInfo]:
    """Return the fields of ``kind`` by the keys that they have in a document."""
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


def advised(kind: type[msgspec.Struct]) -> set[str]:
    """Return the keys of ``kind``, and those that are often written among them by mistake."""
    return {*fields_of(kind), *(key for name, key in _ADVICE if name == kind.__name__)}


def shaped(value: object, kind: type[_Struct], where: Location) -> _Struct:
    """Return ``value`` as a ``kind``. A field with a wrong value counts as absent."""
    if not isinstance(value, dict):
        if value is not None:
            where.mistyped("", f"must be an object, is {kind_of(value)}{_remedy(value, where)}")
        return kind()
    fields = fields_of(kind)
    named = {key: item for key, item in value.items() if key in fields}
    if kind.__struct_config__.forbid_unknown_fields:
        unknown = [key for key in value if key not in fields]
        # The search takes too long for the keys of a hostile document, of which few are reported.
        names = fields.keys() - named.keys() if len(unknown) <= MAX_SHOWN else ()
        for key in unknown:
            advice = _ADVICE.get((kind.__name__, key), "") or _invisible(key)
            where.bad("", f"unknown key {shown(key)}{f': {advice}' if advice else similar(key, names)}")
    return kind(**{fields[key].name: _field(item, fields[key].type, where.child(key)) for key, item in named.items()})


def _field(value: object, wanted: Any, where: Location) -> object:
    """``wanted`` is the annotation of the field."""
    if value is None or wanted is Any:
        return value
    kinds = [kind for kind in get_args(wanted) if kind is not NoneType]
    for kind in kinds:
        if issubclass(get_origin(kind) or kind, msgspec.Struct):
            return shaped(value, kind, where)
        # An exact comparison: true is an int to ``isinstance``, and the JSON decoder takes neither for the other.
        if type(value) is not (get_origin(kind) or kind):
            continue
        return _items(value, get_args(kind)[0], where) if isinstance(value, list) else value
    first = get_origin(kinds[0]) or kinds[0]
    where.mistyped("", f"must be {_NAMES.get(first, 'an object')}, is {kind_of(value)}{_remedy(value, where)}")
    return None


def _items(values: list[object], kind: Any, where: Location) -> list[object]:
    """Keep the index of each item: an item of a wrong type becomes an empty one."""
    items: list[object] = []
    for index, value in enumerate(values):
        at = where.item(index, name_in(value))
        if kind is Any:
            items.append(value)
        elif kind is str:
            items.append(value if isinstance(value, str) else "")
            if not isinstance(value, str):
                at.mistyped("", f"must be a string, is {kind_of(value)}")
        elif issubclass(get_origin(kind) or kind, dict):
            items.append(value if isinstance(value, dict) else {})
            # Null is an empty object here, as absent is.
            if not isinstance(value, dict | None):
                at.mistyped("", f"must be an object, is {kind_of(value)}")
        else:
            items.append(shaped(value, kind, at))
    return items


def _invisible(text: str) -> str:
    """The remedy for a character of the clipboard that looks like a blank, and that YAML takes for a letter."""
    return "it has a no-break space (U+00A0): write a blank" if NO_BREAK in text else ""


def _remedy(value: object, where: Location) -> str:
    # A key with its value, if the blank behind the colon is none.
    if isinstance(value, str) and (invisible := _invisible(value)):
        return f": {invisible}"
    if where.path.endswith(".append") and isinstance(value, bool):
        return ": that is of Ignition 2, list what is appended"
    if where.path.endswith(".contents") and isinstance(value, str):
        return ": a text is the source of a data URL, as source: data:,text; butane makes it of inline text"
    if where.path.endswith(".name") and isinstance(value, bool | int | float):
        # YAML reads no, on and 12 as other values than their letters.
        return ": write it in quotes"
    return _octal(value, where)


def _octal(value: object, where: Location) -> str:
    """The remedy for a mode that is quoted."""
    # Elsewhere, digits in quotes are just a text.
    if not (where.path.endswith(".mode") and isinstance(value, str) and _OCTAL.fullmatch(value)):
        return ""
    number = int(value.removeprefix("0o"), 8)
    return f": write 0{number:o} without quotes ({number} in JSON)"
