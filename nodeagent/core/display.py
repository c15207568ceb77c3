# SPDX-License-Identifier: Apache-2.0
"""Third-party text for display: bounded, on one line, and without terminal control characters.

Users who take an inhibitor, hold a lease, start a transaction or set a condition of a Node choose texts that appear in
the journal, in ``STATUS=``, on the bus and in metrics. They are filtered once, where events are emitted and where log
entries are written, so that no other place has to think of it.

Times in texts are RFC 3339 in UTC as the agent writes them, and in local time in a display.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, TypeVar

# Characters of one text. systemd drops a notification of more than 4096 bytes.
MAX_TEXT: Final = 2000

_BREAKS: Final = "\n\r\t\v\f\x85\u2028\u2029"
T = TypeVar("T")


def text(value: str, limit: int = MAX_TEXT) -> str:
    """Return the text with spaces for line breaks, and escapes for other characters that cannot be printed."""
    if len(value) > limit:
        value = value[: limit - 1] + "…"
    if value.isprintable():
        return value
    return "".join(c if c.isprintable() else " " if c in _BREAKS else ascii(c)[1:-1] for c in value)[:limit]


def other_boots(update: Mapping[str, Any]) -> int:
    """Return how many boots of an entry of ``nodeagent/history/v1`` the agent did not request: after a power cut."""
    return max(0, int(update["boots"]) - int(update["reboots"]))


def displayable(value: T) -> T:
    """Return the value with ``text`` applied to each string in dataclasses, mappings and sequences.

    A value without changes is the same object.
    """
    untyped: Any = value
    if isinstance(untyped, str):
        shown = text(untyped)
        return value if shown == untyped else shown  # type: ignore[return-value]  # an enum stays one
    if isinstance(untyped, Mapping):
        items = {displayable(key): displayable(item) for key, item in untyped.items()}
        return value if all(items.get(key) is item for key, item in untyped.items()) else items  # type: ignore[return-value]
    if isinstance(untyped, list | tuple):
        every = [displayable(item) for item in untyped]
        changed = any(new is not old for new, old in zip(every, untyped, strict=True))
        return type(untyped)(every) if changed else value  # type: ignore[return-value]
    if is_dataclass(untyped) and not isinstance(untyped, type):
        olds = {field.name: getattr(untyped, field.name) for field in fields(untyped) if field.init}
        news = {name: new for name, old in olds.items() if (new := displayable(old)) is not old}
        return replace(untyped, **news) if news else value  # type: ignore[return-value]
    return value


_STAMP: Final = re.compile(r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?Z")


def with_times(text: str, shown: Callable[[str], str]) -> str:
    """Return the text with ``shown`` applied to each time in it."""
    return _STAMP.sub(lambda match: shown(match.group()), text)
