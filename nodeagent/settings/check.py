# SPDX-License-Identifier: Apache-2.0
"""The checks of the settings: each value against its type and bounds, then all of them together.

All errors are reported together, each with its file, line and key, because an admin fixes a file once, not once per
error. An unknown key is an error: if a misspelt setting were silently ignored, the admin would notice only when the
setting is needed.
"""

from __future__ import annotations

import contextlib
import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args, get_origin

import msgspec

from nodeagent import typed
from nodeagent.errors import InvalidInput, Problem
from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason
from nodeagent.settings.part import Part, parts
from nodeagent.settings.schema import NodeName, Settings, groups, keys, part_keys


@dataclass(frozen=True, slots=True)
class Value:
    """One key of one fragment. ``where`` is ``file:line``."""

    value: Any
    where: str


# As other programs take it.
_DURATION: Final = re.compile(r"(\d{1,6}) ?(s|m|min|h|d)")
_SECONDS: Final[Mapping[str, int]] = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
# Characters of a wrong item in a message.
LONGEST: Final = 60


def check_values(merged: Mapping[str, Value]) -> Settings:
    """Convert the merged values. Raises ``InvalidInput`` (``SettingsInvalid``) with a problem for each wrong key."""
    problems: list[Problem] = []
    good: dict[str, Any] = {}
    types = keys()
    for key, value in merged.items():
        if key not in types:
            problems.append(Problem(value.where, _unknown(key)))
            continue
        try:
            good[key] = _converted(value.value, types[key])
        except ValueError:
            message = f"{key} {_expected(types[key])}{_details(value.value, types[key])}"
            problems.append(Problem(value.where, message))
    if problems:
        raise invalid(problems)
    return _settings(good)


def valid_values(values: Mapping[str, Any]) -> Settings:
    """Convert the valid values (by dotted key), over the defaults; unknown keys and wrong values are left out.

    The result is good enough to find the store and to set the log level. No update may be decided with it: without a
    misspelt ``reboot.allow: false``, reboots would be allowed.
    """
    good: dict[str, Any] = {}
    types = keys()
    for key in types.keys() & values.keys():
        with contextlib.suppress(ValueError):
            good[key] = _converted(values[key], types[key])
    return _settings(good)


def _converted(value: Any, kind: Any) -> Any:
    good = typed.convert(value, kind)
    if isinstance(good, float) and math.isnan(good):
        # NaN passes both bounds, because it is neither too small nor too large.
        raise ValueError
    return good


def _settings(values: Mapping[str, Any]) -> Settings:
    tree: dict[str, Any] = {}
    of_features: list[Part] = []
    rest = dict(values)
    for kind in parts():
        own = part_keys(kind)
        fields = {key.rpartition(".")[2]: rest.pop(key) for key in own if key in rest}
        of_features.append(typed.convert(fields, kind))
    for key, value in rest.items():
        group, _, name = key.rpartition(".")
        (tree.setdefault(group, {}) if group else tree)[name] = value
    # Each value was converted alone before, so this cannot fail. An error of the whole would name no file and no line.
    return msgspec.structs.replace(typed.convert(tree, Settings), parts=tuple(of_features))


def _unknown(key: str) -> str:
    types = keys()
    if key in groups():
        return f"{key} is a group: its keys go below it, indented"
    near = difflib.get_close_matches(key, [*types, *sorted(groups())], n=1)
    if not near:
        # The right key in the wrong group, or outside of any group.
        near = [setting for setting in types if setting.rpartition(".")[2] == key.rpartition(".")[2]]
    return f"unknown key {key}" + (f"; did you mean {near[0]}?" if near else "")


def _expected(kind: Any) -> str:
    if kind is bool:
        return "must be true or false"
    if get_origin(kind) is Literal:
        return "must be one of " + ", ".join(get_args(kind))
    if get_origin(kind) is tuple:
        return f"must be a list, each {get_args(get_args(kind)[0])[1].description}"
    # The bounds come from the annotation that msgspec checks, so the message cannot differ from the check.
    base, meta = get_args(kind)
    if base is float:
        return f"must be a number of seconds from {meta.ge} to {meta.le}"
    if base is int:
        return f"must be {meta.description or 'a whole number of MiB'} from {meta.ge} to {meta.le}"
    if meta.description:
        return f"must be {meta.description}"
    return (
        "must be a node name: lower case letters, digits, - and ." if kind is NodeName else "must be an absolute path"
    )


def _details(value: Any, kind: Any) -> str:
    """Return which item of a list is wrong, or the seconds of a duration; "" for another value."""
    duration = _DURATION.fullmatch(value) if isinstance(value, str) and get_args(kind)[:1] == (float,) else None
    if duration is not None:
        return f"; {value} is {int(duration[1]) * _SECONDS[duration[2]]}"
    if get_origin(kind) is not tuple or not isinstance(value, list):
        return ""
    item_kind = get_args(kind)[0]
    for item in value:
        try:
            typed.convert(item, item_kind)
        except ValueError:
            # A setting may be of any length, and the rest of the list is as it must be.
            return f"; wrong is {str(item)[:LONGEST]!r}"
    return ""


def invalid(problems: Sequence[Problem], reason: AnyReason = Reason.SETTINGS_INVALID) -> InvalidInput:
    first = problems[0]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return InvalidInput(
        ": ".join(filter(None, (first.path, first.message))) + more,
        reason=reason,
        hint="nodeagent settings check shows every problem; nothing was changed",
        problems=problems,
    )
